// Log lines on stderr: logging::info("prefetch of {} batches", n). The environment variable
// TANDEM_LOG_LEVEL (debug, info, warn, error, off) sets the minimum level; the default is info.
// Thread-safe, also during process exit. The namespace is not `log`, which is the logarithm.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tandem::logging {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

bool enabled(Level level);
void write(Level level, const std::string& message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug))
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarn)) write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError))
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tandem::logging
