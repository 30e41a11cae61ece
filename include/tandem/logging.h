/// @file
/// The log: warnings and notices of Tandem on stderr.
#pragma once

#include <string_view>

/// The log. (The namespace is not `log`, which is the logarithm.)
namespace tandem::logging {

/// Sets the lowest level that is logged from now on: "debug", "info", "warning" (or "warn"),
/// "error" or "off", in any case. Default: the environment variable TANDEM_LOG_LEVEL, or "info".
/// Throws InvalidArgumentError for another level. Thread-safe.
void set_level(std::string_view level);
/// The lowest level that is logged: "debug", "info", "warning", "error" or "off". Thread-safe.
std::string_view get_level();

}  // namespace tandem::logging
