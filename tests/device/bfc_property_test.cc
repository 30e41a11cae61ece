// Millions of random allocator operations, compared with a second implementation and on their own.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/bfc_allocator.h"
#include "device/bfc_model.h"

namespace tandem::bfc_property_test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 20;  // divides the number of operations, which take longer
#else
constexpr int kShare = 1;
#endif

// A small random number generator: same seed, same operations.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % bound;
  }
  // Evenly distributed over the orders of magnitude up to 2^bits.
  std::size_t size(int bits) {
    return 1 + below(std::uint64_t{1} << (1 + below(static_cast<std::uint64_t>(bits))));
  }

 private:
  std::uint64_t state_;
};

// The allocator and the model, with the same operations.
class Twins {
 public:
  Twins(std::size_t total, bool growth)
      : allocator_({.name = "test_bfc", .total_bytes = total, .allow_growth = growth},
                   std::make_unique<ScriptedSource>(log_)),
        model_(total, growth) {}

  std::size_t live() const { return live_.size(); }

  void allocate(std::size_t bytes, MemoryTag tag) {
    const Scoped scope(memory_tag, tag);
    const auto address = reinterpret_cast<std::uintptr_t>(allocator_.allocate(bytes));
    ASSERT_EQ(address, model_.allocate(bytes, tag)) << bytes << " bytes";
    if (address != 0) live_.push_back(address);
  }

  void deallocate(std::size_t which) {
    allocator_.deallocate(reinterpret_cast<void*>(live_[which]));  // NOLINT
    model_.deallocate(live_[which]);
    live_[which] = live_.back();
    live_.pop_back();
  }

  void trim() { ASSERT_EQ(allocator_.trim(), model_.trim()); }

  void reset_peak() {
    allocator_.reset_peak();
    model_.reset_peak();
  }

  void expect_same_stats() {
    const AllocatorStats stats = allocator_.stats();
    const auto is = [](std::int64_t actual, std::size_t expected) {
      return actual == static_cast<std::int64_t>(expected);
    };
    ASSERT_TRUE(is(stats.num_allocs, model_.allocations));
    ASSERT_TRUE(is(stats.bytes_in_use, model_.in_use));
    ASSERT_TRUE(is(stats.peak_bytes_in_use, model_.peak));
    ASSERT_TRUE(is(stats.largest_alloc_size, model_.largest));
    ASSERT_TRUE(is(stats.bytes_reserved, model_.reserved));
    ASSERT_TRUE(is(stats.largest_free_block, model_.largest_free()));
    std::int64_t sum = 0;
    for (int i = 0; i < kMemoryTags; ++i) {
      const auto tag = static_cast<MemoryTag>(i);
      ASSERT_TRUE(is(stats.bytes_of(tag), model_.by_tag[tag])) << name_of(tag);
      ASSERT_TRUE(is(stats.peak_of(tag), model_.peak_by_tag[tag])) << name_of(tag);
      sum += stats.bytes_of(tag);
    }
    ASSERT_EQ(sum, stats.bytes_in_use);
  }

  void expect_coalesced_at_the_end() {
    while (!live_.empty()) deallocate(live_.size() - 1);
    expect_same_stats();
    ASSERT_TRUE(model_.coalesced());
    ASSERT_EQ(allocator_.stats().bytes_in_use, 0);
    const auto reserved = static_cast<std::size_t>(allocator_.stats().bytes_reserved);
    ASSERT_EQ(allocator_.trim(), reserved);  // every region was one free block
    ASSERT_TRUE(log_.regions.empty());
  }

 private:
  ScriptedSource::Log log_;
  BfcAllocator allocator_;
  BfcModel model_;
  std::vector<std::uintptr_t> live_;
};

TEST(BfcAllocatorProperty, AddressesAndStatisticsMatchThePlainModel) {
  for (const bool growth : {true, false})
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Twins twins(400 * kMiB + 12345, growth);
      Random random(seed);
      for (int step = 0; step < 250'000 / kShare; ++step) {
        SCOPED_TRACE(step);
        const std::uint64_t kind = random.below(1000);
        if (kind == 0)
          twins.trim();
        else if (kind == 1)
          twins.reset_peak();
        else if (twins.live() < 400 && (twins.live() == 0 || kind < 520))
          twins.allocate(random.size(25), static_cast<MemoryTag>(random.below(kMemoryTags)));
        else
          twins.deallocate(random.below(twins.live()));
        if (step % 8 == 0) twins.expect_same_stats();
        if (HasFatalFailure()) return;
      }
      twins.expect_coalesced_at_the_end();
      if (HasFatalFailure()) return;
    }
}

TEST(BfcAllocatorProperty, MillionsOfOperationsLeaveNoTrace) {
  ScriptedSource::Log log;
  BfcAllocator allocator({.name = "test_bfc", .total_bytes = std::size_t{4} << 30},
                         std::make_unique<ScriptedSource>(log));
  Random random(7);
  struct Block {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
  };
  const auto release = [&](Block& block) {
    allocator.deallocate(reinterpret_cast<void*>(block.address));  // NOLINT
    block.address = 0;
  };
  std::vector<Block> live(5000);
  std::map<std::uintptr_t, std::size_t> intervals;
  for (int step = 0; step < 3'000'000 / kShare; ++step) {
    Block& block = live[random.below(live.size())];
    if (block.address != 0) {
      intervals.erase(block.address);
      release(block);
    } else {
      block.bytes = random.size(20);
      block.address = reinterpret_cast<std::uintptr_t>(allocator.allocate(block.bytes));
      ASSERT_NE(block.address, 0u);
      const auto [here, fresh] = intervals.emplace(block.address, block.bytes);
      ASSERT_TRUE(fresh);
      if (here != intervals.begin()) {
        const auto before = std::prev(here);
        ASSERT_LE(before->first + before->second, block.address);
      }
      const auto after = std::next(here);
      if (after != intervals.end()) {
        ASSERT_LE(block.address + block.bytes, after->first);
      }
    }
  }
  for (Block& block : live)
    if (block.address != 0) release(block);
  const AllocatorStats stats = allocator.stats();
  EXPECT_EQ(stats.bytes_in_use, 0);
  for (const std::int64_t bytes : stats.bytes_by_tag) EXPECT_EQ(bytes, 0);
  EXPECT_EQ(allocator.trim(), static_cast<std::size_t>(stats.bytes_reserved));
  EXPECT_TRUE(log.regions.empty());
}

}  // namespace
}  // namespace tandem::bfc_property_test
