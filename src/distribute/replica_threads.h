// The threads that replicas run on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::distribute {

// `count` replicas side by side: replica 0 on the thread that calls run(), each other one on a
// thread of its own, kept between steps. One run() at a time.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(int count);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Calls task(replica) for every replica and returns when all have returned. The task must not
  // throw.
  void run(const std::function<void(int replica)>& task);

 private:
  void work(int replica);
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

}  // namespace tandem::distribute
