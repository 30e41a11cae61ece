// Throws typed errors with formatted messages.
#pragma once

#include <fmt/format.h>

#include "tandem/errors.h"

namespace tandem {

// Throws `E`, a class of tandem/errors.h, with a formatted message. Not inline: hundreds of files
// throw.
template <class E>
[[noreturn, gnu::cold]] void throw_formatted(fmt::string_view format, fmt::format_args args);

// Throws `E` with a formatted message: fail<InvalidArgumentError>("[MatMul] expected {}, got {}",
// a, b).
template <class E, class... Args>
[[noreturn, gnu::always_inline]] inline void fail(fmt::format_string<const Args&...> format,
                                                  const Args&... args) {
  throw_formatted<E>(format, fmt::make_format_args(args...));
}

}  // namespace tandem

// A condition that only a bug in Tandem can break. Always checked; throws InternalError.
#define TANDEM_ASSERT(condition)                                                             \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::tandem::fail<::tandem::InternalError>("{}:{}: {} does not hold", __FILE__, __LINE__, \
                                              #condition);                                   \
  } while (false)
