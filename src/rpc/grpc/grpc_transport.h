// Remote procedure calls over gRPC: HTTP/2 over TCP, or over Unix sockets. A process that is forked
// after its parent has used it cannot use it: every call then throws FailedPreconditionError. Its
// parent's servers and channels must not be destroyed there.
#pragma once

#include <memory>

#include "rpc/channel.h"
#include "rpc/server.h"

namespace tandem::rpc {

// Whether this build has the module and this host has the library.
bool has_grpc();

// Both throw UnavailableError if there is no gRPC, InvalidArgumentError for options that cannot
// work, and FailedPreconditionError for a Unix socket in a directory that others may enter. The
// receiver copies each attachment, once.
std::unique_ptr<Server> make_grpc_server(ServerOptions options);
std::unique_ptr<Channel> make_grpc_channel(ChannelOptions options);

}  // namespace tandem::rpc
