// The caller's side of a server on the same host: memory that both share, and a Unix socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "rpc/call_outcome.h"
#include "rpc/channel.h"
#include "rpc/shared_memory/shared_memory.h"
#include "rpc/unix_socket/connection.h"

namespace tandem::rpc {

// Thread-safe. A channel finds out with its first call whether its server is a neighbor.
class Neighbor : public std::enable_shared_from_this<Neighbor> {
 public:
  Neighbor(const ChannelOptions& options, std::string credential);

  // A call has ended in which the server announced itself with these strings (announcement(),
  // UnixAddress); or one that has failed, after which another process may listen at the address.
  void met(std::string_view process, std::string_view socket);
  void lost();

  // See SharedSender. Does nothing unless the server is a neighbor.
  SharedSender::Sent share(Frame& request, std::chrono::milliseconds limit);
  std::shared_ptr<std::byte> reserve(std::size_t bytes);
  // Sends a request that was given to share() over the Unix socket. Null, and nothing was sent, if
  // that is not possible.
  std::unique_ptr<Call> start(const std::string& method, const Frame& request,
                              const SharedSender::Sent& sent, const CallDescription& description);
  // The message of a reply, from wherever its attachments are. Throws as Call::wait().
  Message message_of(Frame reply, const CallDescription& description);

 private:
  struct Server {
    ProcessIdentity process;
    std::string socket;                      // UnixAddress::text()
    std::shared_ptr<Connection> connection;  // null: it cannot be reached by a Unix socket
  };
  std::shared_ptr<const Server> server() const;

  const Connection::Options options_;
  SharedSender sender_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Server> server_;  // null: no neighbor is known
};

}  // namespace tandem::rpc
