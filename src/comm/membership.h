// Who is in a job, what for, and who has failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// What a process of a job is for, and so what its failure means.
enum class Role : std::uint8_t {
  kWorker,     // takes part in collectives
  kServer,     // is used by workers
  kEvaluator,  // uses what workers write, and is used by nobody
};
// Whether an `observer` cannot go on when a process of that role has failed.
constexpr bool fails(Role observer, Role failed) {
  return observer == Role::kWorker && failed != Role::kEvaluator;
}

// The workers that are there. Every process that fails begins a new epoch.
struct EpochWorkers {
  std::int64_t epoch = 0;
  std::vector<int> ranks;  // of the job
};

// One process's view. Thread-safe.
class Membership {
 public:
  virtual ~Membership() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Role role() const = 0;
  // Whether a process has failed or given up without which this one cannot go on. One relaxed load:
  // wait loops ask it all the time.
  virtual bool failed() const noexcept = 0;
  // Throws AbortedError or UnavailableError that names the rank, its host and the reason.
  // REQUIRES: failed(), now or before.
  [[noreturn]] virtual void throw_failure() const = 0;
  // This rank gives up: tells the others why.
  virtual void report(const std::string& reason) = 0;
  // The latest that this process has heard of. The first is 0.
  virtual std::int64_t epoch() const noexcept = 0;
  // This process goes on with the workers that are there: failed() is false until another process
  // fails. Throws FailedPreconditionError when it has gone on in this epoch already, and what
  // throw_failure() does when there is no going on.
  virtual EpochWorkers go_on() = 0;
};

}  // namespace tandem
