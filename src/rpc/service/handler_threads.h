// The threads of a server, which wait for its events and run its handlers.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::rpc {

// One thread more than handlers run at the same time, so that one always waits for events.
class HandlerThreads {
 public:
  // `handlers`: the largest number of tasks that run at the same time. `waiting`: the largest
  // number that wait. `take_event` waits for the next event and handles it, without waiting for
  // anything else; several threads call it at the same time. False: there are no more events.
  HandlerThreads(int handlers, int waiting, std::function<bool()> take_event);
  // Returns when there are no more events, and all tasks have returned.
  ~HandlerThreads() = default;
  // For `take_event`, whose thread runs the task next unless all handlers are busy. False if too
  // many wait. Tasks do not throw.
  bool submit(std::function<void()> task);

 private:
  void work();
  bool run_one();  // false if no task can run now

  const std::size_t most_running_, most_waiting_;
  const std::function<bool()> take_event_;
  std::mutex mutex_;  // guards the following
  std::deque<std::function<void()>> waiting_;
  std::size_t running_ = 0;
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace tandem::rpc
