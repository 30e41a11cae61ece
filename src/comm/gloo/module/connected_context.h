// A Gloo context whose sockets were connected before.
#pragma once

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem::gloo_backend {

// Waits for a device's thread, which may still handle events of a connection that it has closed.
class LoopTick final : public gloo::transport::tcp::Handler {
 public:
  explicit LoopTick(gloo::transport::tcp::Device& device);
  // Returns when the thread has handled all events that came before. One thread at a time, not the
  // device's.
  void wait();

 private:
  void handleEvents(int events) override;

  gloo::transport::tcp::Device& device_;
  const Socket always_readable_;
  std::shared_ptr<std::promise<void>> came_;
};

class ConnectedContext final : public gloo::transport::tcp::Context {
 public:
  // The device's thread calls `on_event` after each event of a connection.
  ConnectedContext(std::shared_ptr<gloo::transport::tcp::Device> device, int rank, int size,
                   std::function<void()> on_event)
      : Context(std::move(device), rank, size), on_event_(std::move(on_event)), tick_(*device_) {}
  ~ConnectedContext() override;  // of the connections first, which use the members

  void connect(int peer, const Socket& socket);
  // Closes all connections. Must not be called by the device's thread.
  void close() noexcept;

 private:
  std::function<void()> on_event_;
  LoopTick tick_;
};

// A context in which the pair for each rank uses that rank's socket; sockets[rank] is not open.
// Throws ResourceExhaustedError if Gloo cannot create the pairs.
std::shared_ptr<ConnectedContext> make_connected_context(
    const std::shared_ptr<gloo::transport::tcp::Device>& device, int rank,
    std::vector<Socket> sockets, std::chrono::milliseconds time_limit,
    std::function<void()> on_event);

}  // namespace tandem::gloo_backend
