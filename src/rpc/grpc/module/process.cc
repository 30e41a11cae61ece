#include "rpc/grpc/module/process.h"

#include <grpc/support/log.h>
#include <unistd.h>

#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::rpc::grpc_module {
namespace {

void forward(gpr_log_func_args* line) {
  logging::debug("[grpc] {}:{}: {}", line->file, line->line, line->message);
}

}  // namespace

void check_process() {
  static const pid_t first_user = [] {
    if (!env_string("GRPC_VERBOSITY")) gpr_set_log_function(forward);
    return getpid();
  }();
  if (getpid() != first_user)
    fail<FailedPreconditionError>(
        "[rpc] this process was forked after its parent had used gRPC, whose threads do not exist "
        "here: fork before the first server or channel is made");
}

}  // namespace tandem::rpc::grpc_module
