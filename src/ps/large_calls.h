// Calls of any size over channels that have a largest message.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "rpc/channel.h"
#include "rpc/server.h"

namespace tandem::ps {

// A request or reply that is larger than `whole` goes in parts: calls of at most `part` bytes, of
// which `in_flight` are under way at the same time. The server puts the parts of a request together
// before it answers it, and keeps a large reply until its parts have been fetched.
struct LargeCallOptions {
  std::size_t whole = std::size_t{256} << 20;
  std::size_t part = std::size_t{64} << 20;
  std::size_t in_flight = 4;
};

// Its calls of the methods of a LargeCallServer may be of any size; each part has the time limit of
// the call. Throws as `channel`, and rpc::PeerUnavailableError if the server has forgotten the
// parts of a call, because it was restarted or because the caller was silent for ten minutes.
std::shared_ptr<rpc::Channel> large_calls(std::shared_ptr<rpc::Channel> channel,
                                          const LargeCallOptions& options = {});

// Registers handlers, whose calls may be of any size, at a server. Thread-safe after the server's
// start().
class LargeCallServer {
 public:
  // REQUIRES: before server.start().
  explicit LargeCallServer(rpc::Server& server, const LargeCallOptions& options = {});
  void handle(const std::string& method, rpc::Handler handler);

 private:
  class Messages;

  rpc::Server& server_;
  const std::shared_ptr<Messages> messages_;  // of all its handlers
};

}  // namespace tandem::ps
