// A team of threads that repeatedly run one task each in parallel: a strategy's replicas, a
// program's devices.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/threads.h"

namespace tandem {

// Has `count` members. Member 0 is the thread that calls run(); the others are threads that live
// between runs. One run() at a time.
class ThreadTeam {
 public:
  // Throws ResourceExhaustedError if the process may not have that many threads.
  explicit ThreadTeam(int count);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls task(member) for every member and returns when all calls have returned. The task must not
  // throw. Throws FailedPreconditionError in a forked process.
  void run(const std::function<void(int member)>& task);

 private:
  void work(int member);
  void stop();
  template <class Ready>
  void wait(std::condition_variable& changed, const Ready& ready);

  std::mutex mutex_;
  Condition started_, finished_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<std::uint64_t> round_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
  OwnProcess process_;
};

}  // namespace tandem
