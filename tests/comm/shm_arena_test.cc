// A rank's arena: huge pages from the system, smaller allocations for its buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "comm/shm/arena.h"
#include "comm/shm/layout.h"
#include "comm/shm/segment.h"

namespace tandem::shm::shm_arena_test {
namespace {

constexpr std::size_t kHuge = Segment::kHugePage;

struct ArenaOf {
  explicit ArenaOf(std::size_t pages)
      : segment(std::make_shared<Segment>(Segment::create(pages * kHuge))),
        arena(std::make_shared<ShmArena>(segment, 0, pages * kHuge)) {
    segment->unlink();
  }
  std::shared_ptr<Segment> segment;
  std::shared_ptr<ShmArena> arena;
};

bool holds(const std::shared_ptr<void>& memory, std::size_t bytes, unsigned char value) {
  const auto* data = static_cast<const unsigned char*>(memory.get());
  return std::all_of(data, data + bytes, [value](unsigned char byte) { return byte == value; });
}

TEST(ShmArena, BeginsWithAHugePage) {
  const ArenaOf of(3);
  const auto memory = of.arena->allocate(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % kHuge, 0u);
  const SegmentLayout layout(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(layout.ring(rank) % kHuge, 0u);
    EXPECT_EQ(layout.arena(rank) % kHuge, 0u);
  }
}

TEST(ShmArena, ReleasesUnusedPages) {
  const ArenaOf of(3);
  constexpr std::size_t kBytes = kHuge / 2;
  auto first = of.arena->allocate(kBytes);
  auto second = of.arena->allocate(kBytes * 2);  // ends in the next huge page
  auto third = of.arena->allocate(kBytes);
  ASSERT_TRUE(first && second && third);
  for (const auto& memory : {first, third}) std::memset(memory.get(), 7, kBytes);
  std::memset(second.get(), 8, 2 * kBytes);

  second.reset();
  EXPECT_TRUE(holds(first, kBytes, 7));
  EXPECT_TRUE(holds(third, kBytes, 7));
  second = of.arena->allocate(kBytes * 2);
  EXPECT_TRUE(holds(second, 2 * kBytes, 8)) << "its neighbours keep these pages";

  first.reset();
  second.reset();
  EXPECT_TRUE(holds(third, kBytes, 7));
  first = of.arena->allocate(kHuge);
  EXPECT_TRUE(holds(first, kHuge, 0)) << "the first page was free as a whole";
  second = of.arena->allocate(kBytes);
  EXPECT_TRUE(holds(second, kBytes, 8));
}

// A buffer that does not fit in the first chunk lies in a later one; peers find it by its offset.
TEST(ShmArena, GrowsByChunks) {
  constexpr std::size_t kChunk = ArenaChunk::kFirstBytes, kArena = 16 * kChunk;
  const auto segment = std::make_shared<Segment>(Segment::create(kArena));
  const auto arena = std::make_shared<ShmArena>(segment, 0, kArena);
  MappedArena peers_view(segment, 0, kArena);
  for (const std::size_t bytes : {kHuge, kChunk, 3 * kChunk, kChunk / 2, kChunk}) {
    const auto memory = arena->allocate(bytes);
    ASSERT_TRUE(memory) << bytes;
    auto* const data = static_cast<std::byte*>(memory.get());
    data[0] = data[bytes - 1] = std::byte{7};
    const std::int64_t offset = arena->offset_of(data, bytes);
    ASSERT_GE(offset, 0);
    EXPECT_EQ(arena->offset_of(data + 64, bytes - 64), offset + 64);
    const std::byte* const seen = peers_view.map(static_cast<std::size_t>(offset), bytes);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen[0], std::byte{7});
    EXPECT_EQ(seen[bytes - 1], std::byte{7});
  }
  std::byte elsewhere[64];
  EXPECT_EQ(arena->offset_of(elsewhere, sizeof(elsewhere)), -1);
  EXPECT_FALSE(arena->allocate(9 * kChunk)) << "no chunk is as long";
}

TEST(ShmArena, IsWhatItHas) {
  const ArenaOf of(2);
  EXPECT_EQ(of.arena->allocate(2 * kHuge + 1), nullptr);
  auto all = of.arena->allocate(2 * kHuge);
  ASSERT_TRUE(all);
  EXPECT_EQ(of.arena->allocate(1), nullptr);
  all.reset();
  EXPECT_TRUE(of.arena->allocate(2 * kHuge));
}

}  // namespace
}  // namespace tandem::shm::shm_arena_test
