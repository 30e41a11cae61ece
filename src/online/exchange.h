// Agreement of the ranks that train together.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm.h"

namespace tandem::online {

// The kinds of errors, by number: 0 is none.
inline constexpr std::array<std::string_view, 14> kErrorKinds = {
    "",
    "InvalidArgumentError",
    "NotFoundError",
    "AlreadyExistsError",
    "ResourceExhaustedError",
    "FailedPreconditionError",
    "OutOfRangeError",
    "DeadlineExceededError",
    "UnavailableError",
    "AbortedError",
    "DataLossError",
    "UnimplementedError",
    "RuntimeError",
    "InternalError",
};

// The number of an exception's kind, and its message.
struct Caught {
  int kind = 0;
  std::string message;
};
Caught describe(const std::exception_ptr& error);

// Runs `local`, which returns `count` numbers, on every rank, and returns the numbers of all ranks.
// If it throws on a rank, each rank throws an error of the kind of the first such rank. Without a
// group: this process alone. Collective.
std::vector<std::vector<double>> exchange(const std::optional<comm::ProcessGroup>& group,
                                          std::string_view what, std::size_t count,
                                          const std::function<std::vector<double>()>& local);

}  // namespace tandem::online
