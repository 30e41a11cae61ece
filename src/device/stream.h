// Streams and events: work on a device, in order, beside the host.
#pragma once

#include <functional>
#include <memory>

namespace tandem {

// A point in a stream's work. A cheap shared handle; thread-safe.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    // Blocks the calling thread until done.
    virtual void wait() = 0;
  };

  Event() = default;  // already done
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const { return !state_ || state_->done(); }
  void wait() const {
    if (state_) state_->wait();
  }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Work in order. Thread-safe: tasks of several threads are interleaved as they come.
class Stream {
 public:
  // How a kernel reaches the device. kInline: it runs on the calling thread, now (CPU). kDeferred:
  // it runs later on the stream's own thread, so whatever it uses must be kept until then (emulated
  // GPU). kNative: the kernel itself enqueues on native_handle() (CUDA).
  enum class Execution { kInline, kDeferred, kNative };

  virtual ~Stream() = default;
  virtual Execution execution() const = 0;
  virtual void* native_handle() const { return nullptr; }
  // Runs `task` on the host after everything enqueued before. On an inline stream: now. An
  // exception from a deferred task is kept and thrown, once, by the next synchronize() or
  // Event::wait().
  virtual void enqueue(std::function<void()> task) = 0;
  virtual Event record() = 0;
  // Everything enqueued afterwards waits for `event`. On an inline stream the caller waits.
  virtual void wait(const Event& event) = 0;
  // Blocks until all enqueued work is done.
  virtual void synchronize() = 0;
};

}  // namespace tandem
