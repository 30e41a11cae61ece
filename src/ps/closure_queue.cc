#include "ps/closure_queue.h"

#include <utility>

#include "core/status.h"

namespace tandem::ps {
namespace {

std::exception_ptr aborted(const char* text) { return std::make_exception_ptr(AbortedError(text)); }

void cancel_all(const std::deque<std::shared_ptr<Closure>>& closures,
                const std::exception_ptr& why) {
  for (const auto& closure : closures) closure->cancel(why);
}

std::exception_ptr cancelled() {
  return aborted("The corresponding function is cancelled. Please reschedule the function.");
}
std::exception_ptr ended() { return aborted("The coordinator has ended."); }
std::exception_ptr ended_while_running() {
  return aborted(
      "The coordinator has ended while the function ran. Its updates may have been applied.");
}

}  // namespace

ClosureQueue::~ClosureQueue() { stop(); }

bool ClosureQueue::empty() const { return running_ == 0 && queue_.empty() && again_.empty(); }

void ClosureQueue::schedule(std::shared_ptr<Closure> closure) {
  process_.expect_this("ClusterCoordinator");
  Lock lock(mutex_);
  const auto ready = [&] { return stopped_ || error_ || queue_.size() < options_.capacity; };
  if (!changed_.wait_for(lock, options_.schedule_limit, ready))
    fail<DeadlineExceededError>(
        "[ClusterCoordinator] {} calls wait for a worker, and none has started within {} ms",
        queue_.size(), options_.schedule_limit.count());
  throw_pending(lock);
  if (stopped_)
    throw FailedPreconditionError("[ClusterCoordinator] schedule was called after the end");
  closure->scheduled();
  queue_.push_back(std::move(closure));
  changed_.notify_all();
}

void ClosureQueue::join() {
  process_.expect_this("ClusterCoordinator");
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || stopped_ || empty(); });
  throw_pending(lock);
}

bool ClosureQueue::done() {
  process_.expect_this("ClusterCoordinator");
  Lock lock(mutex_);
  throw_pending(lock);
  return empty();
}

void ClosureQueue::throw_pending(Lock& lock) {
  changed_.wait(lock, [&] { return !throwing_; });  // another thread throws it
  if (!error_) return;
  throwing_ = true;
  cancel_all(std::exchange(queue_, {}), cancelled());
  if (!changed_.wait_for(lock, options_.end_limit,
                         [&] { return running_ == 0 && again_.empty(); })) {
    cancelling_ = true;
    lock.unlock();
    hooks_.cancel_running();
    lock.lock();
    changed_.wait(lock, [&] { return running_ == 0; });
  }
  const std::deque<std::shared_ptr<Closure>> unknown = std::exchange(again_, {});
  lock.unlock();
  hooks_.settle({unknown.begin(), unknown.end()});
  lock.lock();
  throwing_ = cancelling_ = false;
  const std::exception_ptr pending = std::exchange(error_, nullptr);
  changed_.notify_all();
  std::rethrow_exception(pending);
}

void ClosureQueue::stop() {
  if (!process_.is_this()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    cancel_all(std::exchange(queue_, {}), ended());
    cancel_all(std::exchange(again_, {}), ended_while_running());
    changed_.notify_all();
  }
  hooks_.cancel_running();
}

std::shared_ptr<Closure> ClosureQueue::take(std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  const auto ready = [&] {
    return stopped_ || (!cancelling_ && !(again_.empty() && queue_.empty()));
  };
  if (!changed_.wait_for(lock, limit, ready) || stopped_) return nullptr;
  auto& next = again_.empty() ? queue_ : again_;
  std::shared_ptr<Closure> closure = std::move(next.front());
  next.pop_front();
  ++running_;
  changed_.notify_all();
  return closure;
}

bool ClosureQueue::cancelling() const {
  const std::lock_guard lock(mutex_);
  return cancelling_ || stopped_;
}

void ClosureQueue::finished() {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(running_ > 0);
  --running_;
  changed_.notify_all();
}

void ClosureQueue::put_back(std::shared_ptr<Closure> closure) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(running_ > 0);
  --running_;
  const bool started = closure->started();
  if (stopped_)
    closure->cancel(started ? ended_while_running() : ended());
  else if (throwing_ && !started)
    closure->cancel(cancelled());
  else
    (started ? again_ : queue_).push_front(std::move(closure));  // it is the oldest
  changed_.notify_all();
}

void ClosureQueue::failed(const std::shared_ptr<Closure>& closure,
                          const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(running_ > 0);
  --running_;
  if (!error_) error_ = failure;
  closure->cancel(failure);
  changed_.notify_all();
}

void ClosureQueue::report(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (error_ || empty()) return;
  error_ = std::move(failure);
  changed_.notify_all();
}

}  // namespace tandem::ps
