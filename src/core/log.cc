#include "core/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "core/env.h"
#include "core/mutex.h"
#include "core/status.h"
#include "tandem/logging.h"

namespace tandem::logging {
namespace {

// In the order of Level.
constexpr std::array<const char*, 5> kSettings = {"debug", "info", "warn", "error", "off"};
constexpr std::array<const char*, 5> kShown = {"debug", "info", "warning", "error", "off"};

// The C library's lock of time zones may be held when another thread forks.
std::tm local_time(std::time_t seconds) {
  static auto& mutex = *new std::mutex;
  static auto& held_at_fork = *new HeldAtFork(mutex);
  static_cast<void>(held_at_fork);
  const std::lock_guard lock(mutex);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

// One call of fwrite, which locks stderr, so that lines of several threads do not mix. It is lost
// if stderr is closed.
void print(Level level, fmt::string_view format, fmt::format_args args) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch());
  const std::tm local = local_time(seconds);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S", &local);
  const std::string line =
      fmt::format("{}.{:03} tandem {}: {}\n", time.data(), since.count() % 1000,
                  kShown[static_cast<std::size_t>(level)], fmt::vformat(format, args));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Level level_of_environment() {
  const auto wanted = env_string("TANDEM_LOG_LEVEL");
  if (!wanted) return Level::kInfo;
  const auto* const found = std::find(kSettings.begin(), kSettings.end(), *wanted);
  if (found != kSettings.end()) return static_cast<Level>(found - kSettings.begin());
  print(Level::kWarn,
        "TANDEM_LOG_LEVEL: expected debug, info, warn, error or off, got '{}'; using info",
        fmt::make_format_args(*wanted));
  return Level::kInfo;
}

// Set by the environment until set_level() is called. Has no destructor, so that threads may log
// during process exit.
std::atomic<Level>& lowest_level() {
  static std::atomic<Level> level{level_of_environment()};
  return level;
}

}  // namespace

void set_level(std::string_view level) {
  std::string wanted(level);
  for (char& c : wanted)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const auto& names : {kShown, kSettings}) {
    const auto* const found = std::find(names.begin(), names.end(), wanted);
    if (found == names.end()) continue;
    lowest_level() = static_cast<Level>(found - names.begin());
    return;
  }
  fail<InvalidArgumentError>(
      "[logging] expected level debug, info, warning, error or off, got '{}'", level);
}

std::string_view get_level() { return kShown[static_cast<std::size_t>(lowest_level().load())]; }

// Runs when the library is loaded. If the standard descriptors are closed, the next files and
// sockets would have their numbers, and messages for stderr would go into them.
[[gnu::constructor]] static void open_standard_descriptors() {
  for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", O_RDWR);  // the lowest free one
    if (opened > standard) close(opened);
  }
}

void write(Level level, fmt::string_view format, fmt::format_args args) {
  if (level >= lowest_level().load(std::memory_order_relaxed)) print(level, format, args);
}

}  // namespace tandem::logging
