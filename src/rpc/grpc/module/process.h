// gRPC's state of this process.
#pragma once

namespace tandem::rpc::grpc_module {

// The first call sends gRPC's log lines to ours, as debug messages, unless $GRPC_VERBOSITY is set.
// Throws FailedPreconditionError if this process was forked after its parent's first call: gRPC's
// threads do not exist here, and calls into it might wait forever.
void check_process();

}  // namespace tandem::rpc::grpc_module
