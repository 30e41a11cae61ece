// The processes of a job, their roles, and which of them have failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// The role of a process, which decides whom its failure affects.
enum class Role : std::uint8_t {
  kWorker,     // takes part in collectives
  kServer,     // serves workers
  kEvaluator,  // reads what workers write; no process depends on it
};
// Whether the failure of a process with role `failed` stops an `observer`.
constexpr bool fails(Role observer, Role failed) {
  return observer == Role::kWorker && failed != Role::kEvaluator;
}

// The workers that have not failed. Every failure of a process begins a new epoch.
struct EpochWorkers {
  std::int64_t epoch = 0;
  std::vector<int> ranks;  // in the job
};

// One process's view. Thread-safe.
class Membership {
 public:
  virtual ~Membership() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Role role() const = 0;
  // Whether a process that this one depends on has failed or aborted. One relaxed load, since wait
  // loops call it continuously.
  virtual bool failed() const noexcept = 0;
  // While it is set, a worker that has left in good order counts as failed, too: this process waits
  // for all others.
  virtual void set_needs_all(bool needs_all) = 0;
  // Throws AbortedError or UnavailableError with the rank, its host and the reason. REQUIRES:
  // failed() has returned true.
  [[noreturn]] virtual void throw_failure() const = 0;
  // Reports a failure of this rank to the other processes.
  virtual void report(const std::string& reason) = 0;
  // The latest epoch that this process knows of. The first is 0.
  virtual std::int64_t epoch() const noexcept = 0;
  // Continues with the workers that have not failed: failed() is false until another process fails.
  // Throws FailedPreconditionError when it was already called in this epoch, and what
  // throw_failure() throws when the job cannot continue.
  virtual EpochWorkers continue_with_survivors() = 0;
};

}  // namespace tandem
