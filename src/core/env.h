// Environment variables. An empty variable counts as one that is not set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

std::optional<std::string> env_string(const char* name);
// A decimal integer in [minimum, maximum]. Throws InvalidArgumentError for anything else, naming
// the variable.
std::optional<std::int64_t> env_int(const char* name, std::int64_t minimum = INT64_MIN,
                                    std::int64_t maximum = INT64_MAX);
// true, yes, on, 1 or false, no, off, 0, in any case. Throws InvalidArgumentError for anything
// else.
std::optional<bool> env_bool(const char* name);

}  // namespace tandem
