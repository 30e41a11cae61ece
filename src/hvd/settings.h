// Settings of the Horovod-compatible API, from environment variables.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::hvd {

// Names and defaults are Horovod's. Rank 0's values are used by every rank.
struct Settings {
  std::int64_t fusion_threshold = std::int64_t{128} << 20;  // HOROVOD_FUSION_THRESHOLD, bytes
  std::int64_t cycle_microseconds = 1000;                   // HOROVOD_CYCLE_TIME, milliseconds
  std::int64_t cache_capacity = 1024;                       // HOROVOD_CACHE_CAPACITY; 0: no cache
  std::int64_t stall_warning_seconds = 60;  // HOROVOD_STALL_CHECK_TIME_SECONDS; 0: no check
  std::int64_t stall_shutdown_seconds =
      0;                         // HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: the time limit
  bool separate_groups = false;  // HOROVOD_DISABLE_GROUP_FUSION
  bool autotune = false;         // HOROVOD_AUTOTUNE
  std::int64_t autotune_warmup_samples = 3;  // HOROVOD_AUTOTUNE_WARMUP_SAMPLES
  std::int64_t autotune_steps = 10;          // HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE
  std::int64_t autotune_samples = 20;        // HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES
  bool mark_cycles = false;                  // HOROVOD_TIMELINE_MARK_CYCLES
};

// Throws InvalidArgumentError, naming the variable, for a value that is not valid.
Settings settings_of_environment();

}  // namespace tandem::hvd
