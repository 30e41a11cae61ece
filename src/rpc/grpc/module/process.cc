#include "rpc/grpc/module/process.h"

#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::rpc::grpc_module {
namespace {

void forward(gpr_log_func_args* line) {
  logging::debug("[grpc] {}:{}: {}", line->file, line->line, line->message);
}

// All servers and channels share a completion queue, which ends with the last of them. Version 1.51
// may abort the process then ("assertion failed: prior > 0"). A server without a port keeps it.
void keep_callback_queue() {
  static auto* const service = new grpc::CallbackGenericService();
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(service);
  [[maybe_unused]] static const auto* const server = builder.BuildAndStart().release();
}

}  // namespace

void check_process() {
  static const pid_t first_user = [] {
    if (!env_string("GRPC_VERBOSITY")) gpr_set_log_function(forward);
    keep_callback_queue();
    return getpid();
  }();
  if (getpid() != first_user)
    fail<FailedPreconditionError>(
        "[rpc] this process was forked after its parent had used gRPC, whose threads do not exist "
        "here: fork before the first server or channel is made");
}

}  // namespace tandem::rpc::grpc_module
