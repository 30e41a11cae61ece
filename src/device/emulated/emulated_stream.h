// A stream with a thread of its own: work is queued by any thread and runs in order, later.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "device/stream.h"

namespace tandem {

// The end of the process does not wait for queued work, as on a real GPU: streams stop after the
// task at hand, and from then on waiting for one is an UnavailableError.
class EmulatedStream final : public Stream {
 public:
  // `intra_op_threads`: the team of each task. `thread_name`: at most 15 characters.
  EmulatedStream(int intra_op_threads, const std::string& thread_name);
  ~EmulatedStream() override;  // finishes the queued work first

  Execution execution() const override { return Execution::kDeferred; }
  void enqueue(std::function<void()> task) override;
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
