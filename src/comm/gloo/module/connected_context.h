// Gloo's connections over sockets that have been connected before.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <memory>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem::gloo_backend {

// A context whose pair with each rank has that rank's socket; the one of `rank` is not open. Throws
// ResourceExhaustedError when Gloo cannot make them.
std::shared_ptr<gloo::transport::Context> make_connected_context(
    const std::shared_ptr<gloo::transport::tcp::Device>& device, int rank,
    std::vector<Socket> sockets, std::chrono::milliseconds time_limit);

}  // namespace tandem::gloo_backend
