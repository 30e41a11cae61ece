// A stream with a thread of its own: work is queued by any thread and runs in order, later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "device/stream.h"

namespace tandem {

// The end of the process does not wait for queued work, as on a real GPU: streams stop after the
// task at hand, and from then on waiting for one is an UnavailableError.
class EmulatedStream final : public Stream {
 public:
  // `intra_op_threads`: the team of each task. `thread_name`: at most 15 characters.
  EmulatedStream(int intra_op_threads, const std::string& thread_name);
  ~EmulatedStream() override;  // finishes the queued work first

  // How much may be under way, as a real GPU's queue is bounded: a thread that enqueues more waits
  // until about half is done, unless it is a stream's own thread, for which a task may be waiting.
  static constexpr std::uint64_t kMostTasks = 256;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  Execution execution() const override { return Execution::kDeferred; }
  void enqueue(std::function<void()> task) override { enqueue(std::move(task), 0); }
  // For a task that keeps so many bytes of the host's memory until it is done.
  void enqueue(std::function<void()> task, std::size_t bytes);
  // Never waits: for callers that hold a lock which tasks take, too.
  void enqueue_at_once(std::function<void()> task);
  Event record() override;
  // The failure of a task before `event` becomes a failure of this stream.
  void wait(const Event& event) override;
  void synchronize() override;
  // What is enqueued afterwards waits for what `other` has been given by now. A failure in it stays
  // with `other`.
  void follow(const EmulatedStream& other);

  // As synchronize(), but leaves a kept exception where it is. On the stream's own thread, or while
  // the process exits: does nothing.
  void drain();
  std::thread::id thread_id() const { return thread_.get_id(); }

 private:
  class Queue;
  class QueueEvent;

  std::shared_ptr<Queue> queue_;  // shared with the events
  std::thread thread_;
};

}  // namespace tandem
