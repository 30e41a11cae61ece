// One error of several streams.
#pragma once

#include <atomic>
#include <exception>
#include <utility>

namespace tandem {

// The first waiter on any of the streams throws it, once. Thread-safe.
class SharedFailure {
 public:
  explicit SharedFailure(std::exception_ptr error) : error_(std::move(error)) {}

  bool taken() const { return taken_.load(); }
  // Null if it has been taken before.
  std::exception_ptr take() { return taken_.exchange(true) ? nullptr : error_; }

 private:
  const std::exception_ptr error_;
  std::atomic<bool> taken_{false};
};

}  // namespace tandem
