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
  // Whether the host of a peer has not received all that was sent to it. A peer that sends
  // something to a closed connection loses the rest, on this host, too.
  bool has_unreceived() const;
  // Whether other code of the process has closed a descriptor of a connection or of the device.
  bool lost_by_this_process() const;
  // Closes all connections. Data that peers have not received by then is lost. Must not be called
  // by the device's thread.
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
