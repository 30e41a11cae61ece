// A rendezvous server outside of the ranks of a job: a job that it hosts does not end with rank 0.
//
//   td::comm::RendezvousServer server({.address = "0.0.0.0", .port = 29400, .ranks = 8});
//   server.wait(std::chrono::minutes(30));  // until the job is over
//
// `tandem run` and `tandem rendezvous` are such servers. Ranks find one by the environment variable
// TANDEM_RENDEZVOUS=HOST:PORT under env://, or by the URL tcp://HOST:PORT?server=outside.
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

struct RendezvousServerOptions {
  /// The address of this machine to listen at. The loopback is for ranks on this machine, 0.0.0.0
  /// (or ::) is every address.
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: one that is free
  int ranks = 1;           ///< of the job
  /// The job's secret, the same for all ranks. Not given: the environment variable
  /// TANDEM_JOB_TOKEN. On the loopback it may be empty: the job is then open to the processes of
  /// this user.
  std::optional<std::string> token{};
  /// How many files and sockets this process needs besides those of the server.
  std::int64_t other_descriptors = 16;
};

/// The key/value store and the membership of a job, on a thread of its own. When a job is over, the
/// server takes in the ranks of the next one. A rank says itself for how long it may be silent
/// before it counts as dead (`silence_limit`, TANDEM_SILENCE_LIMIT). Thread-safe.
class RendezvousServer {
 public:
  /// Listens when it returns. Raises this process's limit of open files (RLIMIT_NOFILE) as far as
  /// it needs and may. Throws InvalidArgumentError for fewer than one rank, or an address that is
  /// none of this machine's; AlreadyExistsError when the port is taken; FailedPreconditionError
  /// when other machines could reach the address and there is no token; ResourceExhaustedError,
  /// which names the limit, when this process may not have two connections for each rank.
  explicit RendezvousServer(const RendezvousServerOptions& options);
  /// Ranks that are still there get an UnavailableError which names the server.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  std::uint16_t port() const;

  /// Returns when the first job is over: each of its ranks has left it or failed, and at least one
  /// has left it in good order. Throws DeadlineExceededError that names the ranks which have not
  /// joined within `join_limit`, AbortedError with the first failure when no rank has left the job
  /// in good order, UnavailableError when the server itself has failed. Once all ranks have joined,
  /// their own limits bound the wait: a rank that ends or falls silent has failed.
  void wait(std::chrono::milliseconds join_limit);

 private:
  std::unique_ptr<TcpServer> server_;
};

}  // namespace tandem::comm
