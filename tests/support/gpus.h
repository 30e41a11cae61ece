// The GPUs that tests run on: NVIDIA's, the fake CUDA's (tests/cuda), or emulated ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/config.h"

namespace tandem::testing {

// Whether CUDA is the fake, which fails on request. tests/cuda/FakeCuda.cmake sets the variable.
inline bool cuda_is_fake() { return std::getenv("FAKE_CUDA_GPUS") != nullptr; }

// The number of NVIDIA GPUs, without calls of CUDA, which does not survive a fork.
inline int nvidia_gpus() {
  if (cuda_is_fake()) return std::atoi(std::getenv("FAKE_CUDA_GPUS"));
  std::error_code none;
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/dev", none)) {
    const std::string name = file.path().filename();  // "nvidia0"; not "nvidiactl"
    if (name.starts_with("nvidia") && name.size() > 6 &&
        name.find_first_not_of("0123456789", 6) == std::string::npos)
      ++count;
  }
  return count;
}

// Whether the machine has GPUs that are not emulated.
inline bool has_real_gpus() {
  const auto gpus = config::list_physical_devices("GPU");
  return !gpus.empty() && !config::get_device_details(gpus.front()).emulated;
}

// Sets the process's GPUs: `count` logical ones of `mib` MiB each. They are emulated, unless the
// machine has real ones: then the first of those, or parts of the first if there are too few.
inline void use_gpus(int count, std::optional<std::int64_t> mib = {}) {
  if (!has_real_gpus()) {
    if (cuda_is_fake() && nvidia_gpus() > 0)
      throw std::runtime_error("the fake of CUDA was not loaded, and emulated GPUs are not meant");
    return config::set_emulated_gpus(count, mib.value_or(1024));
  }
  // Tests check the layout of their limited memory, so allow_growth must not be forced, even if
  // many tests share one GPU (scripts/gpu-check).
  unsetenv("TANDEM_FORCE_GPU_ALLOW_GROWTH");
  const auto all = config::list_physical_devices("GPU");
  const std::vector first(all.begin(),
                          all.begin() + std::min<std::ptrdiff_t>(count, std::ssize(all)));
  config::set_visible_devices(first, "GPU");
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::size_t parts = i == 0 ? static_cast<std::size_t>(count) - first.size() + 1 : 1;
    config::set_logical_device_configuration(
        first[i],
        std::vector(parts, config::LogicalDeviceConfiguration{.memory_limit = mib.value_or(128)}));
  }
}

}  // namespace tandem::testing

// Skips the test if GPUs are real. `why` names the property that only emulated GPUs have.
#define TANDEM_EMULATION_ONLY(why)                               \
  do {                                                           \
    if (::tandem::testing::has_real_gpus()) GTEST_SKIP() << why; \
  } while (false)
