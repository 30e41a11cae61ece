// A Gloo context whose sockets were connected before.
#pragma once

#include <gloo/transport/tcp/context.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/gloo/module/device.h"
#include "comm/rendezvous/socket.h"

namespace tandem::gloo_backend {

class ConnectedContext final : public gloo::transport::tcp::Context {
 public:
  // The device's thread calls `on_event` after each event of a connection.
  ConnectedContext(std::shared_ptr<GlooDevice> device, int rank, int size,
                   std::function<void()> on_event)
      : Context(device, rank, size), events_(std::move(device)), on_event_(std::move(on_event)) {}
  ~ConnectedContext() override;  // of the connections first, which use the members

  void connect(int peer, const Socket& socket);
  // The host of no peer has all that was sent to it. `sent`: whether it was at least sent, which is
  // enough for peers on this host.
  bool has_unsent(bool sent) const;
  // A rank whose connection is not this context's any more, because other code of the process has
  // closed its descriptor; -1: none. This rank if it does not hear of any connection.
  int lost_by_this_process() const;
  // Closes all connections. What peers have not received by then is lost. Must not be called by the
  // device's thread.
  void close() noexcept;

 private:
  const std::shared_ptr<GlooDevice> events_;
  std::function<void()> on_event_;
};

// A context in which the pair for each rank uses that rank's socket; sockets[rank] is not open.
// Throws ResourceExhaustedError if Gloo cannot create the pairs.
std::shared_ptr<ConnectedContext> make_connected_context(const std::shared_ptr<GlooDevice>& device,
                                                         int rank, std::vector<Socket> sockets,
                                                         std::chrono::milliseconds time_limit,
                                                         std::function<void()> on_event);

}  // namespace tandem::gloo_backend
