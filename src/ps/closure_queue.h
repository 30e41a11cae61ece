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
#include <utility>
#include <vector>

#include "core/threads.h"

namespace tandem::ps {

// A call that a worker runs.
class Closure {
 public:
  virtual ~Closure() = default;
  // The call is not run any more, or its result is not used. Called once at most, with the error
  // for those who wait for the result.
  virtual void cancel(const std::exception_ptr& why) noexcept = 0;
  // It is about to be queued.
  virtual void scheduled() {}
  // Whether a worker may have run it.
  virtual bool started() const = 0;
};

// Thread-safe; in a forked process schedule(), join() and done() throw FailedPreconditionError. The
// rules are those of TensorFlow's ClusterCoordinator: the first error that a closure fails with is
// thrown once, by the next schedule(), join() or done(). Until then workers go on. When it is
// thrown, nothing is queued or running. The queue can be used again afterwards.
//
//   queued --take()--> running --finished(), failed()--> ended
//   running --put_back()--> queued again
//
// While an error is being thrown, closures that have not started are cancelled. The others end,
// those that were put back on another worker. Those that take longer than `end_limit` are settled.
class ClosureQueue {
 public:
  using Closures = std::vector<std::shared_ptr<Closure>>;

  struct Options {
    std::size_t capacity = 8192;  // closures that have not started
    // How long schedule() waits for one of them to start.
    std::chrono::milliseconds schedule_limit = std::chrono::hours(1);
    std::chrono::milliseconds end_limit = std::chrono::seconds(10);
  };
  struct Hooks {
    // Called without locks when cancelling() becomes true.
    std::function<void()> cancel_running = [] {};
    // Called without locks before an error is thrown. Makes sure that nothing runs from then on,
    // and cancels these closures, which have started, and whose end is not known.
    std::function<void(const Closures&)> settle = [](const Closures&) {};
  };
  ClosureQueue() : ClosureQueue(Options(), Hooks()) {}
  ClosureQueue(const Options& options, Hooks hooks) : options_(options), hooks_(std::move(hooks)) {}
  ~ClosureQueue();

  // --- the coordinator ---

  // Adds a closure. Waits while the queue is full. Throws the pending error, DeadlineExceededError
  // if no closure has started for `schedule_limit`, and FailedPreconditionError after stop().
  void schedule(std::shared_ptr<Closure> closure);
  // Waits until all closures have finished. Throws the pending error.
  void join();
  // Whether all closures have finished. Throws the pending error.
  bool done();
  // Cancels what is queued. take() returns null from now on.
  void stop();

  // --- the threads of the workers ---

  // The next closure, which is then running. Null after `limit` and after stop().
  std::shared_ptr<Closure> take(std::chrono::milliseconds limit);
  // Whether running closures should be cancelled, because they delay an error too long or the queue
  // stops.
  bool cancelling() const;
  // The next three end the run of a closure that take() returned.
  void finished();
  // Another worker runs the closure, before those that have not started.
  void put_back(std::shared_ptr<Closure> closure);
  // The closure failed, and is cancelled with the error. The first one is thrown.
  void failed(const std::shared_ptr<Closure>& closure, const std::exception_ptr& error);
  // The same for an error that is of no closure. It is dropped if nothing is queued or running.
  void report(std::exception_ptr error);

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool empty() const;  // nothing is queued or running
  void throw_pending(Lock& lock);

  const Options options_;
  const Hooks hooks_;
  OwnProcess process_;
  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Closure>> queue_;  // have not started
  std::deque<std::shared_ptr<Closure>> again_;  // have
  std::size_t running_ = 0;
  std::exception_ptr error_;
  bool throwing_ = false;    // `error_`
  bool cancelling_ = false;  // the running closures, to throw it
  bool stopped_ = false;
};

}  // namespace tandem::ps
