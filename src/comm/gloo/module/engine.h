// Advances a group's operations: on the thread that starts them, and on Gloo's thread whenever a
// connection has read or written. No thread blocks in Gloo.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tandem::gloo_backend {

class GlooEngine {
 public:
  class Task {
   public:
    virtual ~Task() = default;
    // Makes progress without waiting. Called by one thread at a time.
    virtual void step() noexcept = 0;
  };

  // Steps the task from now on, for the first time on this thread.
  void add(Task& operation);
  // When this returns, no thread steps the task any more.
  void remove(Task& operation);
  // Runs `body` while no thread steps any task.
  void pause(const std::function<void()>& body);
  // A transfer may have completed: steps the tasks. Never blocks; if another thread is stepping,
  // that thread does one more round.
  void notify() noexcept;
  // No task is stepped any more.
  void stop();

 private:
  void catch_up() noexcept;

  std::mutex mutex_;
  std::vector<Task*> operations_;  // in the order of the calls
  bool stopped_ = false;
  std::atomic<std::uint64_t> notifications_{0}, handled_{0};
};

}  // namespace tandem::gloo_backend
