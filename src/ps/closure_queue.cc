#include "ps/closure_queue.h"

#include <utility>

#include "core/status.h"

namespace tandem::ps {
namespace {

template <class E>
std::exception_ptr error(const char* text) {
  return std::make_exception_ptr(E(text));
}

}  // namespace

ClosureQueue::~ClosureQueue() { stop(); }

bool ClosureQueue::empty() const { return running_ == 0 && queue_.empty(); }

void ClosureQueue::schedule(std::shared_ptr<Closure> closure) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || error_ || queue_.size() < capacity_; });
  throw_pending(lock);
  if (stopped_)
    throw FailedPreconditionError("[ClusterCoordinator] schedule was called after the end");
  queue_.push_back(std::move(closure));
  changed_.notify_all();
}

void ClosureQueue::join() {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || stopped_ || empty(); });
  throw_pending(lock);
}

bool ClosureQueue::done() {
  Lock lock(mutex_);
  throw_pending(lock);
  return empty();
}

void ClosureQueue::throw_pending(Lock& lock) {
  if (!error_) return;
  cancel_queued(error<AbortedError>(
      "The corresponding function is cancelled. Please reschedule the function."));
  const auto ended = [&] { return running_ == 0; };
  if (!changed_.wait_for(lock, end_limit_, ended)) {
    cancelling_ = true;
    lock.unlock();
    cancel_running_();
    lock.lock();
    changed_.wait(lock, ended);
    cancelling_ = false;
  }
  const std::exception_ptr pending = std::exchange(error_, nullptr);
  changed_.notify_all();
  if (pending) std::rethrow_exception(pending);
}

void ClosureQueue::cancel_queued(const std::exception_ptr& why) {
  for (auto& closure : std::exchange(queue_, {})) closure->cancel(why);
}

void ClosureQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    cancel_queued(error<AbortedError>("The coordinator has ended."));
    changed_.notify_all();
  }
  cancel_running_();
}

std::shared_ptr<Closure> ClosureQueue::take(std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  const auto ready = [&] { return stopped_ || (!error_ && !queue_.empty()); };
  if (!changed_.wait_for(lock, limit, ready) || stopped_) return nullptr;
  std::shared_ptr<Closure> closure = std::move(queue_.front());
  queue_.pop_front();
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
  if (error_ || stopped_)
    closure->cancel(error<AbortedError>(
        "The corresponding function was cancelled while attempting to recover from worker "
        "failure."));
  else
    queue_.push_front(std::move(closure));  // it is the oldest
  changed_.notify_all();
}

void ClosureQueue::failed(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(running_ > 0);
  --running_;
  if (!error_) error_ = std::move(failure);
  changed_.notify_all();
}

void ClosureQueue::report(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (error_ || empty()) return;
  error_ = std::move(failure);
  changed_.notify_all();
}

}  // namespace tandem::ps
