// The closures that a coordinator has scheduled and that workers have not finished.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace tandem::ps {

// A call that a worker runs.
class Closure {
 public:
  virtual ~Closure() = default;
  // The call is not run any more, or its result is not used. Called once at most, with the error
  // for those who wait for the result.
  virtual void cancel(const std::exception_ptr& why) noexcept = 0;
};

// Thread-safe. The rules are those of TensorFlow's ClusterCoordinator: the first error that a
// closure fails with is thrown once, by the next schedule(), join() or done(). Until then nothing
// new starts; when it is thrown, nothing is queued or running. The queue can be used again
// afterwards.
class ClosureQueue {
 public:
  static constexpr std::size_t kCapacity = 256 * 1024;

  // After an error, running closures have `end_limit` to end: it is unknown whether the updates of
  // a cancelled one were applied. `cancel_running` is called, without locks, when cancelling()
  // becomes true.
  explicit ClosureQueue(
      std::size_t capacity = kCapacity,
      std::chrono::milliseconds end_limit = std::chrono::seconds(10),
      std::function<void()> cancel_running = [] {})
      : capacity_(capacity), end_limit_(end_limit), cancel_running_(std::move(cancel_running)) {}
  ~ClosureQueue();

  // --- the coordinator ---

  // Adds a closure. Waits while the queue is full. Throws the pending
  // error, and FailedPreconditionError after stop().
  void schedule(std::shared_ptr<Closure> closure);
  // Waits until all closures have finished. Throws the pending error.
  void join();
  // Whether all closures have finished. Throws the pending error.
  bool done();
  // Cancels what is queued. take() returns null from now on.
  void stop();

  // --- the threads of the workers ---

  // The next closure, which is then running. Null after `limit`, after stop(), and
  // while an error is pending.
  std::shared_ptr<Closure> take(std::chrono::milliseconds limit);
  // Whether running closures should be cancelled, because they delay an error too long or the queue
  // stops.
  bool cancelling() const;
  // The next three end the run of a closure that take() returned.
  void finished();
  // The worker was lost: another one runs the closure. While an error is pending it is cancelled.
  void put_back(std::shared_ptr<Closure> closure);
  // The closure failed. Only the first error is kept.
  void failed(std::exception_ptr error);
  // The same for an error that is of no closure. It is dropped if nothing is queued or running.
  void report(std::exception_ptr error);

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool empty() const;  // nothing is queued or running
  void cancel_queued(const std::exception_ptr& why);
  void throw_pending(Lock& lock);

  const std::size_t capacity_;
  const std::chrono::milliseconds end_limit_;
  const std::function<void()> cancel_running_;
  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Closure>> queue_;
  std::size_t running_ = 0;
  std::exception_ptr error_;
  bool cancelling_ = false;  // the running closures, to throw `error_`
  bool stopped_ = false;
};

}  // namespace tandem::ps
