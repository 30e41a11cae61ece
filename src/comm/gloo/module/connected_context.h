// Gloo's connections over sockets that have been connected before.
#pragma once

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem::gloo_backend {

class ConnectedContext final : public gloo::transport::tcp::Context {
 public:
  // `on_event` is called by the device's thread behind each event of a connection.
  ConnectedContext(std::shared_ptr<gloo::transport::tcp::Device> device, int rank, int size,
                   std::function<void()> on_event)
      : Context(std::move(device), rank, size), on_event_(std::move(on_event)) {}

  void connect(int peer, const Socket& socket);
  // Closes all connections. Must not be called by the device's thread.
  void close() noexcept;

 private:
  std::function<void()> on_event_;
};

// A context whose pair with each rank has that rank's socket; the one of `rank` is not open. Throws
// ResourceExhaustedError when Gloo cannot make them.
std::shared_ptr<ConnectedContext> make_connected_context(
    const std::shared_ptr<gloo::transport::tcp::Device>& device, int rank,
    std::vector<Socket> sockets, std::chrono::milliseconds time_limit,
    std::function<void()> on_event);

}  // namespace tandem::gloo_backend
