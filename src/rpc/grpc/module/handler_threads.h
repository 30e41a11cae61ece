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

class HandlerThreads {
 public:
  // `waiting`: the largest number of tasks that wait for a thread.
  HandlerThreads(int threads, int waiting);
  // Runs the tasks that wait, and returns when all have returned.
  ~HandlerThreads();
  // False if too many wait. Tasks do not throw.
  bool submit(std::function<void()> task);

 private:
  void work();

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace tandem::rpc::grpc_module
