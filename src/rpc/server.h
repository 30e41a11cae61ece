// The server of remote procedure calls. Thread-safe after start().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "rpc/certificate.h"
#include "rpc/message.h"

namespace tandem::rpc {

// A call as its handler sees it. Valid until the handler returns.
class CallContext {
 public:
  virtual ~CallContext() = default;
  // ChannelOptions::caller of the peer.
  virtual const std::string& caller() const = 0;
  // Until the caller's time limit; 0 after it.
  virtual std::chrono::milliseconds remaining() const = 0;
  // Whether the result no longer matters: the caller has cancelled the call, its time limit has
  // passed, its connection is lost, or stop() has reached its limit.
  virtual bool cancelled() const = 0;
};

// Returns the reply. Runs on one of the server's threads, several at the same time. The caller gets
// an Error that it throws, with its type and message, and InternalError for any other exception. A
// handler that waits must return soon after cancelled() becomes true.
using Handler = std::function<Message(const CallContext& context, Message request)>;

struct ServerOptions {
  std::string host = "127.0.0.1";  // a name or an address of this host
  std::uint16_t port = 0;          // 0: any free port
  // If set, in place of host and port: the path of a Unix socket, which start() makes. It is open
  // to all who may enter its directory, which belongs to this user and is closed to others.
  std::string unix_path = {};
  std::string token;                    // the job's; calls of tasks that do not know it are refused
  std::optional<TlsIdentity> tls = {};  // connections are not encrypted without it
  int threads = 8;                      // handlers that run at the same time
  int waiting_calls = 1024;             // for a thread; more get ResourceExhaustedError
  int calls_per_connection = 256;       // at the same time; clients hold back more
  std::size_t largest_message = std::size_t{1} << 30;
  std::size_t memory_limit = std::size_t{4} << 30;  // for the buffers of all connections
  // A connection over the network whose peer does not answer is closed after this time.
  std::chrono::milliseconds silence_limit{20'000};
};

class Server {
 public:
  // Stops with a limit of 0.
  virtual ~Server() = default;
  // REQUIRES: before start(). Throws AlreadyExistsError for a method that has a handler, and
  // FailedPreconditionError after start().
  virtual void handle(const std::string& method, Handler handler) = 0;
  // Starts to listen. Throws AlreadyExistsError if the address is in use, InvalidArgumentError for
  // one that this host does not have, NotFoundError for an unknown host name.
  virtual void start() = 0;
  // The port on which it listens; 0 if it is a Unix socket. Throws FailedPreconditionError before
  // start().
  virtual std::uint16_t port() const = 0;
  // Throws UnavailableError if a server that has started no longer accepts connections. Then it
  // takes up to the limit of silence.
  virtual void check_listening() const = 0;
  // Refuses new calls, waits for the running ones, and cancels those that run longer than `limit`.
  // Returns when all handlers have returned. Later calls do nothing.
  virtual void stop(std::chrono::milliseconds limit) = 0;
};

}  // namespace tandem::rpc
