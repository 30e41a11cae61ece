// The names that clients and servers agree on, and the bytes of messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"
#include "rpc/frame.h"

namespace tandem::rpc::grpc_module {

// "/tandem.Rpc/push" is the path of method "push".
inline constexpr std::string_view kPathPrefix = "/tandem.Rpc/";
inline constexpr const char* kCallerKey = "tandem-caller";
inline constexpr const char* kCredentialKey = "tandem-credential-bin";
inline constexpr const char* kRefusal = "the token is not that of this job";

// As gRPC writes the address of a server.
template <class Options>
std::string address_of(const Options& options) {
  if (!options.unix_path.empty()) return "unix:" + options.unix_path;
  return to_string(Endpoint{options.host, options.port});
}

// Refers to the attachments' bytes and shares their ownership.
grpc::ByteBuffer to_buffer(Frame frame);
// Throws DataLossError for anything but a frame.
Frame from_buffer(const grpc::ByteBuffer& buffer);

// Half of the limit passes before a silent peer is asked to answer, the other half until it counts
// as dead. Both are set on clients and on servers.
struct Keepalive {
  explicit Keepalive(std::chrono::milliseconds limit)
      : pause(static_cast<int>(limit.count() / 2)),
        patience(static_cast<int>(limit.count()) - pause) {}
  int pause, patience;  // milliseconds
};

}  // namespace tandem::rpc::grpc_module
