// Starting threads, and threads in processes that fork. A forked process has only the thread that
// called fork(): what waits for another one of its parent would wait for ever.
#pragma once

#include <condition_variable>
#include <functional>
#include <string_view>
#include <thread>

namespace tandem {

// Starts a thread. Throws ResourceExhaustedError, which names the limits, if the process may not
// have another one.
std::thread start_thread(std::function<void()> run);

// The number of forks between the process that loaded Tandem and this one.
int forks();

// The process that made an object, by which the object knows whether its threads exist.
class OwnProcess {
 public:
  bool is_this() const { return forks() == forks_; }
  // Throws FailedPreconditionError in processes that were forked later.
  void expect_this(std::string_view what) const {
    if (!is_this()) [[unlikely]]
      refuse(what);
  }
  // Joins a thread of the object, or forgets it where it does not exist.
  void join(std::thread& thread) const;

 private:
  [[noreturn]] static void refuse(std::string_view what);
  int forks_ = forks();
};

// A condition variable for objects that a forked process may destroy. The C library would wait for
// the threads that waited for it in the parent.
class Condition {
 public:
  Condition() : variable_(new std::condition_variable) {}
  ~Condition() {
    if (process_.is_this()) delete variable_;
  }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  std::condition_variable& operator*() const { return *variable_; }
  std::condition_variable* operator->() const { return variable_; }

 private:
  OwnProcess process_;
  std::condition_variable* variable_;
};

}  // namespace tandem
