// Who is in a job, and who has failed.
#pragma once

#include <string>

namespace tandem {

// One process's view. Thread-safe.
class Membership {
 public:
  virtual ~Membership() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether a rank has failed or given up. One relaxed load: wait loops ask it all the time.
  virtual bool failed() const noexcept = 0;
  // Throws AbortedError or UnavailableError that names the rank, its host and the reason.
  // REQUIRES: failed().
  [[noreturn]] virtual void throw_failure() const = 0;
  // This rank gives up: tells the others why.
  virtual void report(const std::string& reason) = 0;
};

}  // namespace tandem
