// The allocator with several threads, and its waiting for memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "device/bfc_allocator.h"
#include "device/mmap_memory.h"

namespace tandem::bfc_threads_test {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::unique_ptr<BfcAllocator> make(BfcOptions options) {
  options.name = "test_bfc";
  return std::make_unique<BfcAllocator>(std::move(options), std::make_unique<MmapRegionSource>());
}

// Uses the allocator on a second thread, so that waiting may help.
void touch_from_another_thread(BfcAllocator& allocator) {
  std::thread([&] { allocator.deallocate(allocator.allocate(1)); }).join();
}

TEST(BfcThreads, BlocksNeverOverlap) {
  const auto allocator = make({.total_bytes = 512 * kMiB, .poison_freed = true});
  std::atomic<int> broken{0};
  std::vector<std::thread> threads;
  for (unsigned char id = 1; id <= 4; ++id)
    threads.emplace_back([&, id] {
      struct Block {
        unsigned char* memory = nullptr;
        std::size_t bytes = 0;
      };
      std::vector<Block> live(64);
      unsigned state = id;
      for (int step = 0; step < 20'000; ++step) {
        state = state * 1664525u + 1013904223u;
        Block& block = live[(state >> 8) % live.size()];
        if (block.memory != nullptr) {
          for (std::size_t i = 0; i < block.bytes; i += 97)
            if (block.memory[i] != id) ++broken;
          allocator->deallocate(block.memory);
          block.memory = nullptr;
        } else {
          block.bytes = 1 + (state >> 16) % 20'000;
          block.memory = static_cast<unsigned char*>(allocator->allocate(block.bytes));
          if (block.memory == nullptr) {
            ++broken;
            continue;
          }
          std::memset(block.memory, id, block.bytes);
        }
        if (step % 1000 == 0) allocator->trim();
      }
      for (const Block& block : live) allocator->deallocate(block.memory);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken.load(), 0);
  EXPECT_EQ(allocator->stats().bytes_in_use, 0);
  const std::int64_t reserved = allocator->stats().bytes_reserved;
  EXPECT_EQ(allocator->trim(), static_cast<std::size_t>(reserved));
  EXPECT_EQ(allocator->stats().bytes_reserved, 0);
}

TEST(BfcThreads, WaitsForAnotherThreadToFree) {
  const auto allocator = make({.total_bytes = 4 * kMiB, .allow_growth = false});
  touch_from_another_thread(*allocator);
  void* all = allocator->allocate(4 * kMiB);
  ASSERT_NE(all, nullptr);
  std::atomic<bool> freed{false};
  std::thread other([&] {
    std::this_thread::sleep_for(50ms);
    freed = true;
    allocator->deallocate(all);
  });
  void* next = allocator->allocate(3 * kMiB);
  EXPECT_NE(next, nullptr);
  EXPECT_TRUE(freed.load());
  other.join();
  allocator->deallocate(next);
}

TEST(BfcThreads, FailsAtTheTimeLimit) {
  const auto allocator = make({.total_bytes = 4 * kMiB, .retry_limit = 80ms});
  touch_from_another_thread(*allocator);
  void* most = allocator->allocate(3 * kMiB);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(allocator->allocate(2 * kMiB), nullptr);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 80ms);
  allocator->deallocate(most);
}

// With a limit of an hour, each of these would hang if it waited.
TEST(BfcThreads, DoesNotWaitWhenThatCannotHelp) {
  const auto allocator = make({.total_bytes = 4 * kMiB, .retry_limit = 1h});
  void* most = allocator->allocate(3 * kMiB);
  EXPECT_EQ(allocator->allocate(2 * kMiB), nullptr);  // no other thread uses this allocator
  allocator->deallocate(most);
  touch_from_another_thread(*allocator);
  most = allocator->allocate(3 * kMiB);
  EXPECT_EQ(allocator->allocate(5 * kMiB), nullptr);  // above the limit
  allocator->deallocate(most);
}

TEST(BfcThreads, DrainsDeferredWorkBeforeFailing) {
  void* held = nullptr;
  BfcAllocator* target = nullptr;
  int drained = 0;
  const auto allocator = make({.total_bytes = 4 * kMiB, .retry_limit = 1h, .drain = [&] {
                                 ++drained;
                                 target->deallocate(held);
                                 held = nullptr;
                               }});
  target = allocator.get();
  held = allocator->allocate(3 * kMiB);
  void* next = allocator->allocate(3 * kMiB);
  EXPECT_NE(next, nullptr);
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(allocator->allocate(3 * kMiB), nullptr);
  EXPECT_EQ(drained, 2);
  allocator->deallocate(next);
}

TEST(BfcThreads, TheDrainedThreadIsNotWaitedFor) {
  std::atomic<BfcAllocator*> target{nullptr};
  std::thread worker([&] {
    while (target.load() == nullptr) std::this_thread::yield();
    target.load()->deallocate(target.load()->allocate(1));
  });
  const auto allocator = make({.total_bytes = 4 * kMiB,
                               .retry_limit = 1h,
                               .drain = [] {},
                               .drained_thread = worker.get_id()});
  target = allocator.get();
  worker.join();
  void* most = allocator->allocate(3 * kMiB);
  EXPECT_EQ(allocator->allocate(2 * kMiB), nullptr);
  allocator->deallocate(most);
}

}  // namespace
}  // namespace tandem::bfc_threads_test
