#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <memory>

#include "core/env.h"

namespace tandem::logging {
namespace {

struct LevelName {
  const char* name;
  spdlog::level::level_enum level;
};
// In the order of Level.
constexpr std::array<LevelName, 5> kLevels = {{{"debug", spdlog::level::debug},
                                               {"info", spdlog::level::info},
                                               {"warn", spdlog::level::warn},
                                               {"error", spdlog::level::err},
                                               {"off", spdlog::level::off}}};

// Never destroyed: threads may log while the process exits.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("tandem", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %l: %v");
    made->set_level(spdlog::level::info);
    if (const auto wanted = env_string("TANDEM_LOG_LEVEL")) {
      bool found = false;
      for (const LevelName& each : kLevels)
        if (*wanted == each.name) {
          made->set_level(each.level);
          found = true;
        }
      if (!found)
        made->warn(
            "TANDEM_LOG_LEVEL: expected debug, info, warn, error or off, got '{}'; using info",
            *wanted);
    }
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum of(Level level) {
  return kLevels.at(static_cast<std::size_t>(level)).level;
}

}  // namespace

bool enabled(Level level) { return logger().should_log(of(level)); }

void write(Level level, const std::string& message) {
  logger().log(of(level), spdlog::string_view_t(message));
}

}  // namespace tandem::logging
