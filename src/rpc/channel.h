// The caller's side of remote procedure calls. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rpc/message.h"
#include "tandem/errors.h"

namespace tandem::rpc {

// The server cannot be reached, or the connection was lost during the call, which may have run. An
// UnavailableError of any other class comes from the handler.
class PeerUnavailableError : public UnavailableError {
 public:
  using UnavailableError::UnavailableError;
};

// The TLS handshake failed: the process that listens there has another token or certificate, or no
// TLS. The server may come back.
class PeerNotTrustedError : public PeerUnavailableError {
 public:
  using PeerUnavailableError::PeerUnavailableError;
};

// The call did not end within its time limit. A DeadlineExceededError of any other class comes from
// the handler.
class CallDeadlineError : public DeadlineExceededError {
 public:
  using DeadlineExceededError::DeadlineExceededError;
};

struct ChannelOptions {
  std::string host;
  std::uint16_t port = 0;
  std::string unix_path = {};  // if set, in place of host and port: see ServerOptions
  std::string task;            // the server's, for error messages
  std::string caller;          // this task; printable ASCII
  std::string token;           // the job's
  // TLS, if set: trusts servers whose certificate is this one or is signed with its key.
  std::optional<std::string> root_certificate = {};
  std::string certificate_host = {};  // expected in the server's certificate; empty: `host`
  std::size_t largest_message = std::size_t{1} << 30;
  // A server whose host does not answer during a call fails the call after this time.
  std::chrono::milliseconds silence_limit{20'000};
};

struct CallOptions {
  std::chrono::milliseconds limit;
  // Waits, within the limit, for a server that does not listen yet. Otherwise the call fails at
  // once.
  bool wait_for_server = false;
};

// A call under way. The destructor cancels it unless it has ended.
class Call {
 public:
  virtual ~Call() = default;
  virtual bool done() const = 0;
  // The reply. Throws the handler's error, PeerUnavailableError, CallDeadlineError,
  // FailedPreconditionError if the server refuses the token, ResourceExhaustedError if the reply is
  // larger than ChannelOptions::largest_message or the request than the server's limit,
  // AbortedError after cancel(), and DataLossError for a damaged reply. Call it once.
  virtual Message wait() = 0;
  virtual void cancel() = 0;
};

// A connection to one server. It connects when the first call starts, and again after it was lost:
// at once, then after pauses that grow to 2 s. No call is sent twice.
class Channel {
 public:
  virtual ~Channel() = default;
  // Calls may outlive the channel. Throws ResourceExhaustedError for a request larger than
  // ChannelOptions::largest_message, InvalidArgumentError for a limit that is not positive.
  virtual std::unique_ptr<Call> start(const std::string& method, Message request,
                                      const CallOptions& options) = 0;
  Message call(const std::string& method, Message request, const CallOptions& options) {
    return start(method, std::move(request), options)->wait();
  }
};

}  // namespace tandem::rpc
