// Throws typed errors with formatted messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "tandem/errors.h"

namespace tandem {

// Throws `E` with a formatted message: fail<InvalidArgumentError>("[MatMul] expected {}, got {}",
// a, b).
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tandem

// A condition that only a bug in Tandem can break. Always checked; throws InternalError.
#define TANDEM_ASSERT(condition)                                                             \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::tandem::fail<::tandem::InternalError>("{}:{}: {} does not hold", __FILE__, __LINE__, \
                                              #condition);                                   \
  } while (false)
