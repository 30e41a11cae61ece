// How the processes of a job find each other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/membership.h"
#include "comm/signature.h"
#include "comm/store.h"

namespace tandem {

struct RendezvousOptions {
  std::optional<int> rank, world_size;  // where the URL does not say
  Role role = Role::kWorker;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // The job's secret, the same for all ranks. Not given: the environment variable TANDEM_JOB_TOKEN.
  std::optional<std::string> token;
  // Where rank 0 listens, if not at the address by which the URL or MASTER_ADDR names it; under
  // file://, if not on the loopback.
  std::string bind_address;
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  // How long a rank may be silent before it counts as dead. Default: the environment variable
  // TANDEM_SILENCE_LIMIT, in seconds, else 30 s.
  std::optional<std::chrono::milliseconds> silence{};
};

// A job of which this process is a rank.
class Job {
 public:
  virtual ~Job() = default;  // without leave() before, the others take this rank for dead
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What errors call the ranks.
  virtual RankNames names() const { return {}; }
  // The name or address by which this rank knows the machine of rank 0, or of the server.
  virtual const std::string& master() const = 0;
  // Calls of get() fail as the membership does when a rank fails.
  virtual const std::shared_ptr<Store>& store() const = 0;
  virtual const std::shared_ptr<Membership>& membership() const = 0;
  // Ends this rank's part in good order. Rank 0 waits for the others where it carries the
  // rendezvous, at most so long.
  virtual void leave(std::chrono::milliseconds limit = std::chrono::seconds(30)) = 0;
};

// Waits until every rank of the job is there. `url` is env://, tcp://HOST:PORT or file:///PATH,
// each with the parameters rank and world_size; env:// also takes them, and where rank 0 is, from
// the variables of launchers (cluster_environment.h). Rank 0 hosts the job, unless the URL has
// server=outside, or env:// finds the address of a RendezvousServer in TANDEM_RENDEZVOUS.
//
// Throws InvalidArgumentError for a URL, a rank or a size that makes no sense, or another token
// than rank 0's; AlreadyExistsError when rank 0's port or the file is another job's;
// FailedPreconditionError when rank 0 would listen to other machines without a token;
// DeadlineExceededError that names the ranks which are missing; AbortedError or UnavailableError
// when a rank fails before all are there.
std::unique_ptr<Job> rendezvous(const std::string& url, const RendezvousOptions& options = {});

}  // namespace tandem
