#include "device/pjrt/module/check.h"

#include "core/status.h"

namespace tandem::pjrt {
namespace {

template <class Error>
[[noreturn]] void raise(std::string_view what, const std::string& message) {
  fail<Error>("[PJRT] {}: {}", what, message);
}

}  // namespace

void throw_error(const PJRT_Api& api, PJRT_Error* error, std::string_view what) {
  auto message_args = TANDEM_PJRT_ARGS(PJRT_Error_Message);
  message_args.error = error;
  api.PJRT_Error_Message(&message_args);
  const std::string message(message_args.message, message_args.message_size);
  auto code_args = TANDEM_PJRT_ARGS(PJRT_Error_GetCode);
  code_args.error = error;
  PJRT_Error* code_error = api.PJRT_Error_GetCode(&code_args);
  auto destroy_args = TANDEM_PJRT_ARGS(PJRT_Error_Destroy);
  destroy_args.error = error;
  api.PJRT_Error_Destroy(&destroy_args);
  if (code_error) raise<InternalError>(what, message);
  switch (code_args.code) {
    case PJRT_Error_Code_INVALID_ARGUMENT: raise<InvalidArgumentError>(what, message);
    case PJRT_Error_Code_DEADLINE_EXCEEDED: raise<DeadlineExceededError>(what, message);
    case PJRT_Error_Code_NOT_FOUND: raise<NotFoundError>(what, message);
    case PJRT_Error_Code_RESOURCE_EXHAUSTED: raise<ResourceExhaustedError>(what, message);
    case PJRT_Error_Code_FAILED_PRECONDITION: raise<FailedPreconditionError>(what, message);
    case PJRT_Error_Code_ABORTED:
    case PJRT_Error_Code_CANCELLED: raise<AbortedError>(what, message);
    case PJRT_Error_Code_OUT_OF_RANGE: raise<OutOfRangeError>(what, message);
    case PJRT_Error_Code_UNIMPLEMENTED: raise<UnimplementedError>(what, message);
    case PJRT_Error_Code_UNAVAILABLE: raise<UnavailableError>(what, message);
    default: raise<InternalError>(what, message);
  }
}

}  // namespace tandem::pjrt
