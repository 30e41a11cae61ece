// The calls of a parameter server.
#pragma once

#include "ps/large_calls.h"
#include "ps/parameter_store.h"
#include "rpc/server.h"

namespace tandem::ps {

// Answers calls of ServerClient for this store, which has to outlive the server. REQUIRES: before
// start().
void serve(rpc::Server& server, ParameterStore& store, const LargeCallOptions& options = {});

}  // namespace tandem::ps
