#include "hvd/settings.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "core/env.h"
#include "core/status.h"

namespace tandem::hvd {
namespace {

constexpr std::int64_t kAnyNumber = std::int64_t{1} << 40;

std::optional<double> env_number(const char* name) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::nullopt;
  double value = 0.0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || !(value >= 0.0) || value > 1e6)
    fail<InvalidArgumentError>("[hvd] {} expected a number of 0 to 1000000, got '{}'", name, *text);
  return value;
}

void take(std::int64_t& setting, const char* name) {
  if (const auto value = env_int(name, 0, kAnyNumber)) setting = *value;
}
void take(bool& setting, const char* name) {
  if (const auto value = env_bool(name)) setting = *value;
}

}  // namespace

Settings settings_of_environment() {
  Settings settings;
  take(settings.fusion_threshold, "HOROVOD_FUSION_THRESHOLD");
  if (const auto cycle = env_number("HOROVOD_CYCLE_TIME"))
    settings.cycle_microseconds = std::llround(*cycle * 1000.0);
  take(settings.cache_capacity, "HOROVOD_CACHE_CAPACITY");
  take(settings.stall_warning_seconds, "HOROVOD_STALL_CHECK_TIME_SECONDS");
  take(settings.stall_shutdown_seconds, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
  bool no_check = false;
  take(no_check, "HOROVOD_STALL_CHECK_DISABLE");
  if (no_check) settings.stall_warning_seconds = settings.stall_shutdown_seconds = 0;
  // As in Horovod: a limit below the warning time is ignored.
  if (settings.stall_shutdown_seconds < settings.stall_warning_seconds)
    settings.stall_shutdown_seconds = 0;
  take(settings.separate_groups, "HOROVOD_DISABLE_GROUP_FUSION");
  take(settings.autotune, "HOROVOD_AUTOTUNE");
  take(settings.autotune_warmup_samples, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES");
  take(settings.autotune_steps, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE");
  take(settings.autotune_samples, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES");
  take(settings.mark_cycles, "HOROVOD_TIMELINE_MARK_CYCLES");
  return settings;
}

}  // namespace tandem::hvd
