// Threads that do one task each, side by side, again and again: a strategy's replicas, a program's
// devices.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem {

// `count` members: member 0 is the thread that calls run(), each other one a thread of its own,
// kept between runs. One run() at a time.
class ThreadTeam {
 public:
  explicit ThreadTeam(int count);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls task(member) for every member and returns when all have returned. The task must not
  // throw.
  void run(const std::function<void(int member)>& task);

 private:
  void work(int member);
  template <class Ready>
  void wait(std::condition_variable& changed, const Ready& ready);

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<std::uint64_t> round_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tandem
