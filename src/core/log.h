// Log lines on stderr: logging::info("prefetch of {} batches", n). The environment variable
// TANDEM_LOG_LEVEL (debug, info, warn, error, off) sets the minimum level, until a program calls
// set_level() (tandem/logging.h); the default is info.
// Thread-safe, also during process exit. The namespace is not `log`, which is the logarithm.
#pragma once

#include <fmt/format.h>

namespace tandem::logging {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

void write(Level level, fmt::string_view format, fmt::format_args args);

template <class... Args>
void debug(fmt::format_string<const Args&...> format, const Args&... args) {
  write(Level::kDebug, format, fmt::make_format_args(args...));
}
template <class... Args>
void info(fmt::format_string<const Args&...> format, const Args&... args) {
  write(Level::kInfo, format, fmt::make_format_args(args...));
}
template <class... Args>
void warn(fmt::format_string<const Args&...> format, const Args&... args) {
  write(Level::kWarn, format, fmt::make_format_args(args...));
}
template <class... Args>
void error(fmt::format_string<const Args&...> format, const Args&... args) {
  write(Level::kError, format, fmt::make_format_args(args...));
}

}  // namespace tandem::logging
