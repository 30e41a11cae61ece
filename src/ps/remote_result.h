// The result of a closure.
#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <vector>

#include "core/mutex.h"
#include "core/threads.h"
#include "tandem/tensor.h"

namespace tandem::ps {

// Thread-safe.
class RemoteResult {
 public:
  // How long users of the public API wait for a result.
  static constexpr std::chrono::milliseconds kLimit = std::chrono::hours(24);

  enum class State {
    kNotReady,  // the closure is queued or runs
    kAborted,   // it was cancelled or has failed
    kReady,
  };

  State state() const;
  // The result. Waits until the closure has ended, at most `limit`. Throws the closure's error,
  // DeadlineExceededError after the limit, and FailedPreconditionError in a forked process unless
  // it had ended before.
  std::vector<Tensor> wait(std::chrono::milliseconds limit) const;

  // Each result is set once, by one of these.
  void set(std::vector<Tensor> tensors);
  void abort(std::exception_ptr error);

 private:
  OwnProcess process_;
  mutable std::mutex mutex_;
  const HeldAtFork held_at_fork_{mutex_};
  Condition ended_;
  State state_ = State::kNotReady;
  std::vector<Tensor> tensors_;
  std::exception_ptr error_;
};

}  // namespace tandem::ps
