// A client's connection to the rendezvous server of its job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/wire.h"

namespace tandem {

// The address of a job's server and the secret that identifies the job.
struct ServerAddress {
  Endpoint endpoint;
  std::string secret;
};

// One thread at a time.
class ServerConnection {
 public:
  // Makes one attempt. Throws UnavailableError if nothing or something other than a Tandem server
  // answers, InvalidArgumentError if the server has another secret.
  ServerConnection(const ServerAddress& address, Clock::time_point deadline);

  const Socket& socket() const { return socket_; }
  void send(const WireMessage& message, Clock::time_point deadline);
  // Empty if no complete message has arrived at `until`. Throws UnavailableError if the server has
  // closed the connection.
  std::optional<WireMessage> receive(Clock::time_point until);

 private:
  Socket socket_;
  FrameReader reader_;
};

struct FoundServer {
  Endpoint endpoint;
  ServerConnection connection;
};
// Waits for the server of `whose`, which listens on one of the ports. Throws DeadlineExceededError
// with the reason of the last failed attempt; InvalidArgumentError if the secrets differ and there
// is only one port (with several, another job may use one). REQUIRES: ports is not empty.
FoundServer find_server(const std::string& host, std::span<const std::uint16_t> ports,
                        const std::string& secret, const TimeLimit& limit,
                        const char* whose = "rank 0");

}  // namespace tandem
