// The messages of out-of-memory errors.
#include "device/memory_report.h"

#include <gtest/gtest.h>

#include "device/device_manager.h"
#include "tandem/config.h"
#include "tandem/errors.h"

namespace tandem::memory_report_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

BytesByTag tagged(std::initializer_list<std::pair<MemoryTag, std::int64_t>> mebibytes) {
  BytesByTag bytes{};
  for (const auto& [tag, count] : mebibytes) bytes[static_cast<std::size_t>(tag)] = count * kMiB;
  return bytes;
}

AllocatorStats stats_of(std::int64_t in_use, std::int64_t largest_free, const BytesByTag& by_tag) {
  return {.bytes_in_use = in_use * kMiB,
          .bytes_limit = 128 * kMiB,
          .bytes_reserved = 128 * kMiB,
          .largest_free_block = largest_free * kMiB,
          .bytes_by_tag = by_tag};
}

TEST(MemoryReport, TagsAreListedTheMostFirst) {
  EXPECT_EQ(describe_by_tag({}), "nothing");
  EXPECT_EQ(describe_by_tag(tagged({{MemoryTag::kOther, 2},
                                    {MemoryTag::kWeights, 2},
                                    {MemoryTag::kWorkspace, 0},
                                    {MemoryTag::kActivations, 60}})),
            "activations 60.0 MiB, weights 2.0 MiB, other 2.0 MiB");
  const char* const names[] = {"weights",   "activations", "gradients",
                               "optimizer", "workspace",   "other"};
  for (int tag = 0; tag < kMemoryTags; ++tag)
    EXPECT_STREQ(name_of(static_cast<MemoryTag>(tag)), names[tag]);
}

TEST(MemoryReport, AdviceFollowsTheStatistics) {
  const BytesByTag none{};
  EXPECT_EQ(what_to_try(129 * kMiB, stats_of(0, 128, none), std::nullopt),
            "Try a smaller batch; splitting the request, which alone is above the limit; a higher "
            "memory limit for this device; more devices.");
  EXPECT_EQ(what_to_try(100 * kMiB, stats_of(64, 64, tagged({{MemoryTag::kActivations, 64}})), {}),
            "Try a smaller batch; freeing tensors that are no longer needed; a higher memory limit "
            "for this device; more devices.");
  EXPECT_EQ(what_to_try(100 * kMiB, stats_of(64, 64, tagged({{MemoryTag::kOptimizer, 64}})),
                        Alternative{.device = "GPU:1", .free = 120 * kMiB}),
            "Try a smaller batch; a smaller model, or an optimizer that keeps less; a higher "
            "memory limit for this device; GPU:1, which has 120.0 MiB free.");
  EXPECT_NE(what_to_try(100 * kMiB, stats_of(64, 64, tagged({{MemoryTag::kGradients, 64}})), {})
                .find("dropping gradients"),
            std::string::npos);
  EXPECT_NE(what_to_try(60 * kMiB, stats_of(64, 32, tagged({{MemoryTag::kActivations, 64}})), {})
                .find("enough is free, but in pieces"),
            std::string::npos);
}

TEST(MemoryReport, TheErrorHasAllStatistics) {
  config::set_emulated_gpus(2, 64);
  DeviceImpl& gpu = *DeviceManager::get().devices(DeviceType::kGpu, "test").front();
  {
    const Scoped weights(memory_tag, MemoryTag::kWeights);
    gpu.allocator().allocate(8 << 20);
  }
  gpu.allocator().deallocate(gpu.allocator().allocate(16 << 20));
  try {
    throw_out_of_memory(gpu, {.what = "tensor with shape (60, 1024, 256) and dtype float32",
                              .op = "MatMul",
                              .bytes = 60 << 20});
  } catch (const ResourceExhaustedError& error) {
    EXPECT_STREQ(
        error.what(),
        "OOM when allocating tensor with shape (60, 1024, 256) and dtype float32 on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc for operation MatMul: "
        "requested 60.0 MiB (62914560 bytes), limit 64.0 MiB, in use 8.0 MiB (weights 8.0 MiB), "
        "peak 24.0 MiB, reserved 64.0 MiB, largest free block 56.0 MiB, fragmentation 0%. Try a "
        "smaller batch; a smaller model, or an optimizer that keeps less; a higher memory limit "
        "for this device; /job:localhost/replica:0/task:0/device:GPU:1, which has 64.0 MiB free.");
  }
}

}  // namespace
}  // namespace tandem::memory_report_test
