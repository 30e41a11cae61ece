// The names that clients and servers agree on, and the bytes of messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <cstdint>
#include <string_view>

#include "rpc/frame.h"

namespace tandem::rpc::grpc_module {

// "/tandem.Rpc/push" is the path of method "push".
inline constexpr std::string_view kPathPrefix = "/tandem.Rpc/";
inline constexpr const char* kCallerKey = "tandem-caller";
inline constexpr const char* kCredentialKey = "tandem-credential-bin";
inline constexpr const char* kProcessKey = "tandem-process";  // announcement(), in both directions
inline constexpr const char* kSocketKey = "tandem-socket";    // UnixAddress::text(), of a server
inline constexpr const char* kRefusal = "the token is not that of this job";

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
