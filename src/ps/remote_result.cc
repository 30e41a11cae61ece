#include "ps/remote_result.h"

#include <utility>

#include "core/status.h"

namespace tandem::ps {

RemoteResult::State RemoteResult::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::vector<Tensor> RemoteResult::wait(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  if (state_ == State::kNotReady) process_.expect_this("RemoteValue");
  if (!ended_->wait_for(lock, limit, [&] { return state_ != State::kNotReady; }))
    fail<DeadlineExceededError>(
        "[RemoteValue] the function has not ended after {} ms: it is queued or runs",
        limit.count());
  if (state_ == State::kAborted) std::rethrow_exception(error_);
  return tensors_;
}

void RemoteResult::set(std::vector<Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(state_ == State::kNotReady);
  tensors_ = std::move(tensors);
  state_ = State::kReady;
  ended_->notify_all();
}

void RemoteResult::abort(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(state_ == State::kNotReady);
  error_ = std::move(error);
  state_ = State::kAborted;
  ended_->notify_all();
}

}  // namespace tandem::ps
