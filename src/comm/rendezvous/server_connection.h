// A client's connection with the rendezvous server of its job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/wire.h"

namespace tandem {

// Where a job's server is, and what proves that it is this job's.
struct ServerAddress {
  Endpoint endpoint;
  std::string secret;
};

// One thread's at a time.
class ServerConnection {
 public:
  // One attempt. Throws UnavailableError when nothing answers or what answers is no server of
  // Tandem, InvalidArgumentError when the server has another secret.
  ServerConnection(const ServerAddress& address, Clock::time_point deadline);

  const Socket& socket() const { return socket_; }
  void send(const Message& message, Clock::time_point deadline);
  // Nothing when no message is whole at `until`. Throws UnavailableError when the server has gone.
  std::optional<Message> receive(Clock::time_point until);

 private:
  Socket socket_;
  FrameReader reader_;
};

struct FoundServer {
  Endpoint endpoint;
  ServerConnection connection;
};
// Waits for the server of `whose`, which listens at one of the ports. Throws DeadlineExceededError
// that tells why the last attempt failed; InvalidArgumentError when the secrets differ and there is
// one port alone. At others, other jobs may listen. REQUIRES: ports is not empty.
FoundServer find_server(const std::string& host, std::span<const std::uint16_t> ports,
                        const std::string& secret, const TimeLimit& limit,
                        const char* whose = "rank 0");

}  // namespace tandem
