// The processes of a job, and which of them have failed.
#pragma once

#include <string>

namespace tandem {

// One process's view. Thread-safe.
class Membership {
 public:
  virtual ~Membership() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether another process has failed or aborted. One relaxed load, since wait loops call it
  // continuously.
  virtual bool failed() const noexcept = 0;
  // While it is set, a rank that has left in good order counts as failed, too: this process waits
  // for all others.
  virtual void set_needs_all(bool needs_all) = 0;
  // Throws AbortedError or UnavailableError with the rank, its host and the reason. REQUIRES:
  // failed() has returned true.
  [[noreturn]] virtual void throw_failure() const = 0;
  // Reports a failure of this rank to the other processes.
  virtual void report(const std::string& reason) = 0;
  // The reason to report should this process end without a goodbye; the first one counts. Without
  // it the others would blame this rank for a failure that it has heard of.
  virtual void note_failure(const std::string& reason) { static_cast<void>(reason); }
};

}  // namespace tandem
