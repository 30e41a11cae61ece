// How functions of the C interface end.
#pragma once

#include <functional>
#include <stdexcept>

#include <tandem_c.h>

namespace tandem::c {

// An error of another rank.
class RankError : public std::runtime_error {
 public:
  RankError(tandem_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  tandem_status status() const { return status_; }

 private:
  tandem_status status_;
};

// The status of the exception that is being handled, and its message.
struct Caught {
  tandem_status status;
  std::string message;
};
Caught caught();

// Calls `body` without the host's floating-point traps, and returns its status. No exception
// leaves, and the host's floating-point environment and OpenMP settings are as before.
tandem_status guarded(const std::function<void()>& body) noexcept;

}  // namespace tandem::c
