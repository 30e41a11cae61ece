// A thread that waits, so that others need not.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/gloo/module/line.h"

namespace tandem::gloo_backend {

// Something to do, and what has come of it.
class Task {
 public:
  std::string description;
  std::function<void(Line&)> body;
  std::exception_ptr error;  // once it has ended
  std::atomic<std::uint64_t> steps{0};

  // With `error` or without.
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }
  void end();
  // Returns when it has ended, or at the limit.
  void wait(std::chrono::microseconds limit);

 private:
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Does tasks one after the other; none any more after one has failed.
class Worker {
 public:
  explicit Worker(const Mesh& mesh);
  ~Worker();

  void add(std::shared_ptr<Task> task);
  // Ends the task under way, and returns when the thread has done with it.
  void stop();
  // The peer that the thread waits for; -1: none.
  int waits_for() const { return line_.waits_for(); }

 private:
  void run();

  Line line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tandem::gloo_backend
