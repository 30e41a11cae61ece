// A stream with its own thread. Any thread can enqueue work, which runs later, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "device/stream.h"

namespace tandem {

// As on a real GPU, process exit does not wait for queued work: the streams stop after the current
// task, and waiting for them throws UnavailableError from then on.
class EmulatedStream final : public Stream {
 public:
  // `intra_op_threads`: the team size of each task. `thread_name`: at most 15 characters.
  EmulatedStream(int intra_op_threads, const std::string& thread_name);
  ~EmulatedStream() override;  // finishes the queued work

  // Limits on queued work, since a real GPU's queue is bounded, too. A thread that exceeds them
  // waits until about half is done, unless it is a stream's thread, which a task may depend on.
  static constexpr std::uint64_t kMostTasks = 256;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  Execution execution() const override { return Execution::kDeferred; }
  void enqueue(std::function<void()> task) override { enqueue(std::move(task), 0); }
  // For a task that holds `bytes` of host memory until it is done.
  void enqueue(std::function<void()> task, std::size_t bytes);
  // Never waits: for callers that hold a lock which tasks acquire, too.
  void enqueue_at_once(std::function<void()> task);
  StreamEvent record() override;
  // A failed task before `event` becomes a failure of this stream.
  void wait(const StreamEvent& event) override;
  void synchronize() override;
  // Makes later work wait for the work that `other` has been given so far. Failures of that work
  // remain with `other`.
  void follow(const EmulatedStream& other);

  // As synchronize(), but does not throw a stored exception. Does nothing on the stream's own
  // thread or during process exit.
  void drain();
  // The fraction of the time since the stream was made, or since reset_busy_share(), in which it
  // ran tasks other than waits.
  double busy_share() const;
  void reset_busy_share();
  std::thread::id thread_id() const { return thread_.get_id(); }

 private:
  class Queue;
  class QueueEvent;

  std::shared_ptr<Queue> queue_;  // shared with the events
  std::thread thread_;
};

}  // namespace tandem
