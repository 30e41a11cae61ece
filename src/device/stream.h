// Streams and events: ordered work on a device that runs asynchronously to the host.
#pragma once

#include <functional>
#include <memory>

namespace tandem {

// A position in a stream's work. A cheap, thread-safe handle.
class StreamEvent {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    // Blocks the calling thread until done.
    virtual void wait() = 0;
  };

  StreamEvent() = default;  // already done
  explicit StreamEvent(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const { return !state_ || state_->done(); }
  void wait() const {
    if (state_) state_->wait();
  }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// A queue of work that runs in order. Thread-safe: tasks of several threads are interleaved as they
// arrive.
class Stream {
 public:
  // How a kernel runs. kInline: immediately, on the calling thread (CPU). kDeferred: later, on the
  // stream's own thread, so its arguments must stay alive until then (emulated GPU). kNative: the
  // kernel enqueues itself on native_handle() (CUDA).
  enum class Execution { kInline, kDeferred, kNative };

  virtual ~Stream() = default;
  virtual Execution execution() const = 0;
  virtual void* native_handle() const { return nullptr; }
  // Runs `task` on the host after all earlier work; immediately on an inline stream. An exception
  // of a deferred task is thrown once, by the next synchronize() or StreamEvent::wait().
  virtual void enqueue(std::function<void()> task) = 0;
  virtual StreamEvent record() = 0;
  // Makes all later work wait for `event`. On an inline stream, the caller waits.
  virtual void wait(const StreamEvent& event) = 0;
  // Blocks until all enqueued work is done.
  virtual void synchronize() = 0;
};

}  // namespace tandem
