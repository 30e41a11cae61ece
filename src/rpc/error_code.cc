#include "rpc/error_code.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "core/status.h"

namespace tandem::rpc {
namespace {

struct Kind {
  std::string_view name;
  void (*raise)(const std::string& message);
};

template <class E>
void raise(const std::string& message) {
  throw E(message);
}

// Code 1 is the first. New types go to the end, so that codes keep their meaning.
constexpr std::array kKinds = {
    Kind{"InternalError", raise<InternalError>},
    Kind{"InvalidArgumentError", raise<InvalidArgumentError>},
    Kind{"NotFoundError", raise<NotFoundError>},
    Kind{"AlreadyExistsError", raise<AlreadyExistsError>},
    Kind{"ResourceExhaustedError", raise<ResourceExhaustedError>},
    Kind{"FailedPreconditionError", raise<FailedPreconditionError>},
    Kind{"OutOfRangeError", raise<OutOfRangeError>},
    Kind{"DeadlineExceededError", raise<DeadlineExceededError>},
    Kind{"UnavailableError", raise<UnavailableError>},
    Kind{"AbortedError", raise<AbortedError>},
    Kind{"DataLossError", raise<DataLossError>},
    Kind{"UnimplementedError", raise<UnimplementedError>},
    Kind{"RuntimeError", raise<RuntimeError>},
    Kind{"ShapeError", raise<ShapeError>},
    Kind{"DTypeError", raise<DTypeError>},
};

}  // namespace

std::uint32_t code_of(const Error& error) {
  for (std::uint32_t i = 0; i < kKinds.size(); ++i)
    if (kKinds[i].name == error.kind()) return i + 1;
  return 1;
}

void throw_error(std::uint32_t code, const std::string& message) {
  if (code >= 1 && code <= kKinds.size()) kKinds[code - 1].raise(message);
  fail<DataLossError>("[rpc] a reply has an unknown outcome {}, expected 0 to {}", code,
                      kKinds.size());
}

}  // namespace tandem::rpc
