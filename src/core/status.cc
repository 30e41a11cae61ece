#include "core/status.h"

namespace tandem {

Error::~Error() = default;

template <class E>
void throw_formatted(fmt::string_view format, fmt::format_args args) {
  throw E(fmt::vformat(format, args));
}

#define TANDEM_ERROR(Name) \
  Name::~Name() = default; \
  template void throw_formatted<Name>(fmt::string_view format, fmt::format_args args)

TANDEM_ERROR(InvalidArgumentError);
TANDEM_ERROR(ShapeError);
TANDEM_ERROR(DTypeError);
TANDEM_ERROR(NotFoundError);
TANDEM_ERROR(AlreadyExistsError);
TANDEM_ERROR(ResourceExhaustedError);
TANDEM_ERROR(FailedPreconditionError);
TANDEM_ERROR(OutOfRangeError);
TANDEM_ERROR(DeadlineExceededError);
TANDEM_ERROR(UnavailableError);
TANDEM_ERROR(AbortedError);
TANDEM_ERROR(DataLossError);
TANDEM_ERROR(UnimplementedError);
TANDEM_ERROR(RuntimeError);
TANDEM_ERROR(InternalError);

void detail::fail_index(const char* what, std::size_t index, std::size_t size) {
  fail<OutOfRangeError>("[{}] expected an index below {}, got {}", what, size, index);
}

}  // namespace tandem
