// The types of errors as numbers on the wire.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/errors.h"

namespace tandem::rpc {

// 1 or more. A type that is not one of tandem/errors.h has InternalError's.
std::uint32_t code_of(const Error& error);
// Throws the error of the code with this message; DataLossError for a code that does not exist.
[[noreturn]] void throw_error(std::uint32_t code, const std::string& message);

}  // namespace tandem::rpc
