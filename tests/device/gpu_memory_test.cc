#include "device/gpu_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tandem::gpu_memory_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(GpuMemory, ReserveByComputeCapability) {
  const struct {
    std::int64_t available;
    int compute_major;
    std::int64_t reserve;
  } table[] = {{1024, 9, 225},   {2047, 5, 225},   {2048, 5, 500},   {16384, 6, 500},
               {16384, 7, 1050}, {16384, 8, 1536}, {81920, 9, 1800}, {184320, 10, 1800},
               {200, 8, 0},      {225, 8, 0},      {226, 8, 225}};
  for (const auto& each : table)
    EXPECT_EQ(gpu_memory_limit({.total = 200'000 * kMiB,
                                .available = each.available * kMiB,
                                .compute_major = each.compute_major},
                               0.0),
              (each.available - each.reserve) * kMiB)
        << each.available << " MiB, " << each.compute_major;
}

TEST(GpuMemory, SharedWithTheHost) {
  EXPECT_EQ(
      gpu_memory_limit(
          {.total = 8192 * kMiB, .available = 4096 * kMiB, .compute_major = 8, .integrated = true},
          0.0),
      3072 * kMiB);
}

TEST(GpuMemory, AFractionIsOfTheTotal) {
  EXPECT_EQ(
      gpu_memory_limit({.total = 1000 * kMiB, .available = 10 * kMiB, .compute_major = 8}, 0.25),
      250 * kMiB);
}

TEST(GpuMemory, TheEnvironmentSetsAnotherReserve) {
  const GpuMemory memory{.total = 4096 * kMiB, .available = 4000 * kMiB, .compute_major = 6};
  setenv("TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB", "100", 1);
  EXPECT_EQ(gpu_memory_limit(memory, 0.0), 3900 * kMiB);
  setenv("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "200", 1);  // TANDEM's variable overrides it
  EXPECT_EQ(gpu_memory_limit(memory, 0.0), 3900 * kMiB);
  unsetenv("TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB");
  EXPECT_EQ(gpu_memory_limit(memory, 0.0), 3800 * kMiB);
  for (const char* bad : {"5000", "many"}) {
    setenv("TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB", bad, 1);
    testing::internal::CaptureStderr();
    EXPECT_EQ(gpu_memory_limit(memory, 0.0), 3500 * kMiB);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::gpu_memory_test
