// The threads that run handlers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::rpc::grpc_module {

// A task goes to the thread that became idle last, whose memory is most likely in the caches.
class HandlerThreads {
 public:
  // `waiting`: the largest number of tasks that wait for a thread.
  HandlerThreads(int threads, int waiting);
  // Runs the tasks that wait, and returns when all have returned.
  ~HandlerThreads();
  // False if too many wait. Tasks do not throw.
  bool submit(std::function<void()> task);

 private:
  struct Idle {
    std::condition_variable changed;
    bool woken = false;
  };

  void work();
  Idle* last_idle();  // null if all are busy. With the mutex held.

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
  std::vector<Idle*> idle_;  // threads, in the order in which they became idle
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace tandem::rpc::grpc_module
