// How the processes of a job find each other.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/membership.h"
#include "comm/store.h"

namespace tandem {

class Transport;

struct RendezvousOptions {
  std::optional<int> rank, world_size;  // used if the URL does not contain them
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // The job's secret, the same for all ranks. Default: the environment variable TANDEM_JOB_TOKEN.
  std::optional<std::string> token;
  // The address that rank 0 listens on. Default: the host in the URL or MASTER_ADDR; with a token
  // all of its interfaces, if the host's name is not known yet or MASTER_ADDR is the loopback and
  // ranks may be elsewhere; for file:// the loopback.
  std::string bind_address;
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  // How long a rank may be silent before it counts as dead. Default: the environment variable
  // TANDEM_SILENCE_LIMIT, in seconds, else 30 s.
  std::optional<std::chrono::milliseconds> silence{};
};

// A job that this process is a rank of.
class Job {
 public:
  virtual ~Job() = default;  // without shut_down() before, this rank counts as dead
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The name or address by which this rank reaches the host of rank 0, or of the server.
  virtual const std::string& master() const = 0;
  // Its get() throws the membership's error when a rank fails.
  virtual const std::shared_ptr<Store>& store() const = 0;
  virtual const std::shared_ptr<Membership>& membership() const = 0;
  // The functions of the program through which the ranks communicate; null: there are none, and the
  // ranks meet at the store. If there are, there is no store.
  virtual std::shared_ptr<Transport> transport() const { return nullptr; }
  // Leaves the job in good order. If rank 0 hosts the rendezvous server, it waits for the others,
  // at most for `limit`.
  virtual void shut_down(std::chrono::milliseconds limit = std::chrono::seconds(30)) = 0;

  // Numbers this rank's calls for `what`, from 0. All ranks make the same calls. Thread-safe.
  int next_call(const std::string& what);

 private:
  std::mutex mutex_;
  std::map<std::string, int> calls_;
};

// Waits until every rank of the job has joined. `url` is env://, tcp://HOST:PORT or file:///PATH,
// each with optional parameters rank and world_size. env:// also takes these, and the host of rank
// 0, from launchers' variables (cluster_environment.h). Rank 0 hosts the server, unless the URL has
// server=outside or env:// finds a RendezvousServer's address in TANDEM_RENDEZVOUS.
//
// Throws InvalidArgumentError for an invalid URL, rank or size, or a token that differs from rank
// 0's; AlreadyExistsError if another job uses rank 0's port or the file; FailedPreconditionError if
// ranks may be on several hosts and there is no token; DeadlineExceededError with the missing
// ranks; AbortedError or UnavailableError if a rank fails before all have joined.
std::unique_ptr<Job> rendezvous(const std::string& url, const RendezvousOptions& options = {});

}  // namespace tandem
