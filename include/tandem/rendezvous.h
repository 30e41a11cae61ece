/// @file
/// A rendezvous server outside of a job's ranks, so that the job does not end with rank 0.
/// @code
/// td::comm::RendezvousServer server({.address = "0.0.0.0", .port = 29400, .ranks = 8});
/// server.wait(std::chrono::minutes(30));  // until the job is over
/// @endcode
///
/// `tandem run` and `tandem rendezvous` are such servers. Ranks connect to one if the environment
/// variable TANDEM_RENDEZVOUS=HOST:PORT is set (with env://) or with the URL
/// tcp://HOST:PORT?server=outside.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tandem/errors.h"

namespace tandem {
class TcpServer;
}

namespace tandem::comm {

/// Options of RendezvousServer.
struct RendezvousServerOptions {
  /// Local address to listen at. The loopback address serves ranks on this machine; 0.0.0.0 (or ::)
  /// is every address.
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  ///< port; 0: any free one
  int ranks = 1;           ///< number of ranks of the job
  /// The job's secret, the same for all ranks. Default: the environment variable TANDEM_JOB_TOKEN.
  /// On the loopback address it may be empty; the job is then open to this user's processes.
  std::optional<std::string> token{};
  /// Number of files and sockets that this process needs besides the server's.
  std::int64_t other_descriptors = 16;
};

/// The key/value store and membership service of a job, on its own thread. After a job is over, the
/// server accepts the ranks of the next one. Each rank sets its own silence limit (`silence_limit`,
/// TANDEM_SILENCE_LIMIT). Thread-safe. As torch.distributed.TCPStore.
class RendezvousServer {
 public:
  /// Starts listening. Raises this process's limit of open files (RLIMIT_NOFILE) as far as needed
  /// and allowed. Throws InvalidArgumentError for fewer than one rank and for an address of another
  /// machine; AlreadyExistsError if the port is in use; FailedPreconditionError if other machines
  /// can reach the address and there is no token; ResourceExhaustedError, with the limit, if two
  /// connections per rank exceed the limit.
  explicit RendezvousServer(const RendezvousServerOptions& options);
  /// Stops the server. Ranks that are still connected get an UnavailableError that names it.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  std::uint16_t port() const;  ///< the port that it listens at

  /// For launchers: the process of rank `rank` has ended. A job that still waits for that rank to
  /// join fails at once on the others, instead of at their time limit.
  void rank_ended(int rank);

  /// Waits until the first job is over: each rank has left or failed, and at least one has left in
  /// good order. Throws DeadlineExceededError that names the ranks that did not join within
  /// `join_limit`, AbortedError with the first failure if no rank left in good order, and
  /// UnavailableError if the server itself failed. Once all ranks have joined, their own limits
  /// bound the wait: a rank that exits or is silent for too long has failed.
  void wait(std::chrono::milliseconds join_limit);

 private:
  std::unique_ptr<TcpServer> server_;
};

}  // namespace tandem::comm
