#include "device/bfc_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/bfc_model.h"
#include "device/mmap_memory.h"

namespace tandem::bfc_allocator_test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Fixture {
  explicit Fixture(std::size_t total, bool growth = true, bool garbage_collection = true)
      : allocator({.name = "test_bfc",
                   .total_bytes = total,
                   .allow_growth = growth,
                   .garbage_collection = garbage_collection},
                  std::make_unique<ScriptedSource>(log)) {}
  std::uintptr_t allocate(std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(allocator.allocate(bytes));
  }
  void deallocate(std::uintptr_t address) {
    allocator.deallocate(reinterpret_cast<void*>(address));  // NOLINT
  }

  ScriptedSource::Log log;
  BfcAllocator allocator;
};

TEST(BfcAllocator, RoundsRequestsUpTo256Bytes) {
  Fixture f(64 * kMiB);
  EXPECT_EQ(f.allocate(0), 0u);
  const auto a = f.allocate(1), b = f.allocate(256), c = f.allocate(257), d = f.allocate(1);
  EXPECT_EQ(b - a, 256u);
  EXPECT_EQ(c - b, 256u);
  EXPECT_EQ(d - c, 512u);
  EXPECT_EQ(a % 256, 0u);
  const AllocatorStats stats = f.allocator.stats();
  EXPECT_EQ(stats.num_allocs, 4);
  EXPECT_EQ(stats.bytes_in_use, 1280);
  EXPECT_EQ(stats.largest_alloc_size, 512);
  EXPECT_EQ(stats.bytes_limit, 64 << 20);
  EXPECT_EQ(f.allocator.name(), "test_bfc");
  f.allocator.deallocate(nullptr);
}

TEST(BfcAllocator, RegionsDoubleFromTwoMiB) {
  Fixture f(64 * kMiB);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 0);
  f.allocate(1);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 2 << 20);
  f.allocate(2 * kMiB);  // next: 4 MiB
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 6 << 20);
  f.allocate(17 * kMiB);  // 8, 16, then 32: enlarged to fit, so the one after is 32 again
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 38 << 20);
  f.allocate(16 * kMiB);  // 38 + 32 is above the limit: all that remains
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 64 << 20);
}

TEST(BfcAllocator, WithoutGrowthTheFirstExtensionTakesAll) {
  Fixture f(100 * kMiB + 100, /*growth=*/false);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 0);
  f.allocate(1);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 100 << 20);
  EXPECT_EQ(f.log.regions.size(), 1u);
  EXPECT_EQ(f.allocator.stats().largest_free_block, (100 << 20) - 256);
}

TEST(BfcAllocator, SplitsFromTwiceTheRequestOn) {
  Fixture f(2 * kMiB);
  const auto first = f.allocate(1024);
  const auto fence = f.allocate(256);
  f.deallocate(first);
  const auto whole = f.allocate(768);  // 1024 < 2 * 768: not split
  EXPECT_EQ(whole, first);
  EXPECT_EQ(f.allocator.stats().bytes_in_use, 1024 + 256);
  f.deallocate(whole);
  const auto half = f.allocate(512);  // 1024 >= 2 * 512: split
  EXPECT_EQ(half, first);
  EXPECT_EQ(f.allocator.stats().bytes_in_use, 512 + 256);
  EXPECT_EQ(f.allocate(512), first + 512);
  f.deallocate(fence);
}

TEST(BfcAllocator, SplitsWhen128MiBWouldBeLost) {
  Fixture f(1024 * kMiB, /*growth=*/false);
  f.allocate(700 * kMiB);  // leaves 324, less than 2 * 200 but 124 over: not split
  f.allocate(200 * kMiB);
  EXPECT_EQ(f.allocator.stats().bytes_in_use, 1024 << 20);
  Fixture g(1024 * kMiB, /*growth=*/false);
  g.allocate(696 * kMiB);  // leaves 328: 128 over 200, so split
  g.allocate(200 * kMiB);
  EXPECT_EQ(g.allocator.stats().bytes_in_use, 896 << 20);
}

TEST(BfcAllocator, TakesTheBestFitThenTheLowestAddress) {
  Fixture f(2 * kMiB);
  std::vector<std::uintptr_t> blocks;
  for (const std::size_t size : {2048, 256, 1024, 256, 1024, 256, 1280, 256})
    blocks.push_back(f.allocate(size));
  for (const int i : {4, 0, 6, 2}) f.deallocate(blocks[static_cast<std::size_t>(i)]);
  EXPECT_EQ(f.allocate(1024), blocks[2]);
  EXPECT_EQ(f.allocate(1024), blocks[4]);
  EXPECT_EQ(f.allocate(1024), blocks[6]);
  EXPECT_EQ(f.allocate(1024), blocks[0]);
}

TEST(BfcAllocator, CoalescesOnBothSidesButNotAcrossRegions) {
  Fixture f(6 * kMiB);
  const auto a = f.allocate(1 * kMiB), b = f.allocate(512 << 10), c = f.allocate(512 << 10);
  const auto other = f.allocate(4 * kMiB);
  f.deallocate(a);
  f.deallocate(c);
  EXPECT_EQ(f.allocator.stats().largest_free_block, 1 << 20);
  EXPECT_DOUBLE_EQ(f.allocator.stats().fragmentation(), 0.5 / 1.5);
  f.deallocate(b);
  EXPECT_EQ(f.allocator.stats().largest_free_block, 2 << 20);
  f.deallocate(other);
  EXPECT_EQ(f.allocator.stats().largest_free_block, 4 << 20);
  EXPECT_EQ(f.allocator.stats().bytes_in_use, 0);
}

TEST(BfcAllocator, BacksOffOnceInItsLife) {
  Fixture f(1024 * kMiB, /*growth=*/false);
  f.log.largest = 600 * kMiB;
  ASSERT_NE(f.allocate(1), 0u);  // 1024 * 0.9^6 is the first below 600
  EXPECT_EQ(f.log.refused, 6);
  const auto reserved = static_cast<std::size_t>(f.allocator.stats().bytes_reserved);
  EXPECT_GE(reserved, 540 * kMiB);
  EXPECT_LE(reserved, 600 * kMiB);
  f.log.refused = 0;
  f.log.largest = 100 * kMiB;
  EXPECT_EQ(f.allocate(700 * kMiB), 0u);  // above the remaining limit: the source is not called
  EXPECT_EQ(f.log.refused, 0);
  EXPECT_EQ(f.allocate(reserved), 0u);
  EXPECT_EQ(f.log.refused, 0);
  EXPECT_EQ(f.allocate(reserved - 256), f.log.regions.begin()->first + 256);
  EXPECT_EQ(f.allocate(kMiB), 0u);  // refused, and no second back-off
  EXPECT_EQ(f.log.refused, 1);
}

TEST(BfcAllocator, BacksOffDownToTheRequest) {
  Fixture f(1024 * kMiB, /*growth=*/false);
  f.log.largest = 512 * kMiB;
  EXPECT_NE(f.allocate(512 * kMiB), 0u);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 512 << 20);
}

TEST(BfcAllocator, GivesBackFreeRegionsBeforeRunningOut) {
  Fixture f(14 * kMiB);
  const auto a = f.allocate(2 * kMiB), b = f.allocate(4 * kMiB);
  const auto c = f.allocate(8 * kMiB);
  f.deallocate(a);
  f.deallocate(c);
  EXPECT_EQ(f.allocate(11 * kMiB), 0u);  // at most 10 MiB could be freed: no region is released
  EXPECT_EQ(f.log.given_back, 0);
  EXPECT_NE(f.allocate(10 * kMiB), 0u);
  EXPECT_EQ(f.log.given_back, 2);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 14 << 20);
  f.deallocate(b);

  Fixture off(6 * kMiB, true, /*garbage_collection=*/false);
  off.deallocate(off.allocate(2 * kMiB));
  EXPECT_EQ(off.allocate(6 * kMiB), 0u);
}

TEST(BfcAllocator, TrimReturnsWhatIsWhollyFree) {
  Fixture f(64 * kMiB);
  const auto a = f.allocate(2 * kMiB), b = f.allocate(4 * kMiB), c = f.allocate(8 * kMiB);
  f.deallocate(b);
  EXPECT_EQ(f.allocator.trim(), 4 * kMiB);
  EXPECT_EQ(f.allocator.trim(), 0u);
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 10 << 20);
  f.deallocate(a);
  f.deallocate(c);
  EXPECT_EQ(f.allocator.trim(), 10 * kMiB);
  EXPECT_TRUE(f.log.regions.empty());
  f.allocate(1);  // starts again with 2 MiB
  EXPECT_EQ(f.allocator.stats().bytes_reserved, 2 << 20);
}

TEST(BfcAllocator, AccountsByTagAndPeak) {
  Fixture f(64 * kMiB);
  std::uintptr_t weights = 0, nested = 0;
  {
    const Scoped scope(memory_tag, MemoryTag::kWeights);
    weights = f.allocate(1000);
    {
      const Scoped inner(memory_tag, MemoryTag::kGradients);
      nested = f.allocate(300);
    }
    f.allocate(256);
  }
  f.allocate(1);
  const auto by_tag = [&](MemoryTag tag) { return f.allocator.stats().bytes_of(tag); };
  const auto peak_of = [&](MemoryTag tag) { return f.allocator.stats().peak_of(tag); };
  EXPECT_EQ(by_tag(MemoryTag::kWeights), 1024 + 256);
  EXPECT_EQ(by_tag(MemoryTag::kGradients), 512);
  EXPECT_EQ(by_tag(MemoryTag::kActivations), 256);  // the default tag
  f.deallocate(nested);                             // counts for the tag it was allocated with
  f.deallocate(weights);
  EXPECT_EQ(by_tag(MemoryTag::kGradients), 0);
  EXPECT_EQ(by_tag(MemoryTag::kWeights), 256);
  EXPECT_EQ(f.allocator.stats().peak_bytes_in_use, 1024 + 512 + 256 + 256);
  EXPECT_EQ(peak_of(MemoryTag::kGradients), 512);
  EXPECT_EQ(peak_of(MemoryTag::kWeights), 1024 + 256);
  f.allocator.reset_peak();
  EXPECT_EQ(f.allocator.stats().peak_bytes_in_use, 512);
  EXPECT_EQ(peak_of(MemoryTag::kGradients), 0);
  EXPECT_EQ(peak_of(MemoryTag::kWeights), 256);
}

TEST(BfcAllocator, FailedTriesReturnNullAndWarnTenTimes) {
  int drained = 0;
  ScriptedSource::Log log;
  BfcAllocator allocator(
      {.name = "GPU_0_bfc", .total_bytes = 4 * kMiB, .drain = [&] { ++drained; }},
      std::make_unique<ScriptedSource>(log));
  EXPECT_EQ(allocator.try_allocate(0), nullptr);
  void* most = allocator.try_allocate(3 * kMiB);
  EXPECT_NE(most, nullptr);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(allocator.try_allocate((i % 2 == 0 ? 2 : 5) * kMiB), nullptr);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string text =
      "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.0 MiB. The caller indicates "
      "that this is not a failure, but may mean that there could be performance gains if more "
      "memory were available.";
  EXPECT_NE(said.find(text), std::string::npos) << said;
  std::size_t warnings = 0;
  for (std::size_t at = said.find("ran out"); at != std::string::npos;
       at = said.find("ran out", at + 1))
    ++warnings;
  EXPECT_EQ(warnings, 10u);
  EXPECT_EQ(drained, 0);  // does not wait
  allocator.deallocate(most);
  EXPECT_EQ(allocator.stats().bytes_in_use, 0);
}

TEST(BfcAllocator, GivesEverythingBackAtItsEnd) {
  ScriptedSource::Log log;
  {
    BfcAllocator allocator({.name = "x", .total_bytes = 64 * kMiB},
                           std::make_unique<ScriptedSource>(log));
    allocator.allocate(1);
    allocator.deallocate(allocator.allocate(3 * kMiB));
    EXPECT_EQ(log.regions.size(), 2u);
  }
  EXPECT_TRUE(log.regions.empty());
}

TEST(BfcAllocatorDeathTest, StrayAndDoubleFreesEndTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Fixture f(64 * kMiB);
  const auto a = f.allocate(1000);
  EXPECT_DEATH(f.deallocate(a + 1), "");
  EXPECT_DEATH(f.deallocate(a + 256), "");
  EXPECT_DEATH(f.deallocate(123 << 8), "");
  f.deallocate(a);
  EXPECT_DEATH(f.deallocate(a), "");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(BfcAllocatorDeathTest, UseAfterFreeIsSeenByTheSanitizer) {
  BfcAllocator allocator({.name = "x", .total_bytes = 64 * kMiB, .poison_freed = true},
                         std::make_unique<MmapRegionSource>());
  auto* memory = static_cast<volatile char*>(allocator.allocate(1000));
  memory[999] = 1;
  allocator.deallocate(const_cast<char*>(memory));
  EXPECT_DEATH(memory[0] = 1, "use-after-poison");
  auto* again = static_cast<volatile char*>(allocator.allocate(1000));
  again[999] = 1;
}
#endif

}  // namespace
}  // namespace tandem::bfc_allocator_test
