#include "comm/shm/arena.h"

#include <algorithm>
#include <iterator>

#include "comm/shm/layout.h"
#include "tandem/errors.h"

namespace tandem::shm {

MappedArena::MappedArena(std::shared_ptr<const Segment> segment, std::size_t begin,
                         std::size_t bytes)
    : segment_(std::move(segment)), begin_(begin), bytes_(bytes) {}

std::byte* MappedArena::map(std::size_t offset, std::size_t bytes) {
  if (offset >= bytes_ || bytes > bytes_ - offset) return nullptr;
  const int index = ArenaChunk::index_of(offset);
  const auto place = static_cast<std::size_t>(index);
  const std::size_t begin = ArenaChunk::begin_of(index);
  const std::size_t end = std::min(ArenaChunk::end_of(index), bytes_);
  if (bytes > end - offset) return nullptr;
  if (!chunks_[place]) {
    chunks_[place].emplace(segment_, begin_ + begin, end - begin);
    data_[place].store(chunks_[place]->data(), std::memory_order_release);
  }
  return chunks_[place]->data() + (offset - begin);
}

std::int64_t MappedArena::offset_of(const void* data, std::size_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t i = 0; i < kChunks; ++i) {
    const auto* const chunk = data_[i].load(std::memory_order_acquire);
    if (!chunk) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(chunk);
    const std::size_t length = chunks_[i]->bytes();
    if (at < begin || at - begin > length || bytes > length - (at - begin)) continue;
    return static_cast<std::int64_t>(ArenaChunk::begin_of(static_cast<int>(i)) + (at - begin));
  }
  return -1;
}

ShmArena::ShmArena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes)
    : mapped_(std::move(segment), begin, bytes) {
  for (int index = 0; ArenaChunk::begin_of(index) < bytes; ++index) {
    const std::size_t first = ArenaChunk::begin_of(index);
    free_.emplace(first, std::min(ArenaChunk::end_of(index), bytes) - first);
  }
}

std::shared_ptr<void> ShmArena::allocate(std::size_t bytes) {
  const std::size_t rounded = pages(bytes);
  std::size_t at = 0;
  std::byte* data = nullptr;
  {
    std::lock_guard lock(mutex_);
    auto found = free_.begin();
    while (found != free_.end() && found->second < rounded) ++found;
    if (found == free_.end()) return nullptr;
    at = found->first;
    data = take(at, rounded);
    if (!data) return nullptr;
    const std::size_t rest = found->second - rounded;
    free_.erase(found);
    if (rest > 0) free_.emplace(at + rounded, rest);
  }
  return {data, [self = shared_from_this(), at, rounded](void*) { self->deallocate(at, rounded); }};
}

// Null if the host has no room.
std::byte* ShmArena::take(std::size_t at, std::size_t bytes) {
  std::byte* data = nullptr;
  try {
    data = mapped_.map(at, bytes);
  } catch (const ResourceExhaustedError&) {
    return nullptr;
  }
  const MappedRange& chunk = mapped_.chunk_at(at);
  const std::size_t first = static_cast<std::size_t>(data - chunk.data());
  const std::size_t huge = huge_pages_before(first);
  if (chunk.reserve(huge, huge_pages(first + bytes) - huge) || chunk.reserve(first, bytes))
    return data;
  return nullptr;
}

void ShmArena::deallocate(std::size_t at, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  const int index = ArenaChunk::index_of(at);
  const std::size_t chunk_begin = ArenaChunk::begin_of(index);
  auto item = free_.emplace(at, bytes).first;
  if (const auto after = std::next(item); after != free_.end() && at + bytes == after->first &&
                                          after->first < ArenaChunk::end_of(index)) {
    item->second += after->second;
    free_.erase(after);
  }
  if (item != free_.begin()) {
    const auto before = std::prev(item);
    if (before->first >= chunk_begin && before->first + before->second == at) {
      before->second += item->second;
      free_.erase(item);
      item = before;
    }
  }
  // Release the huge pages that have become unused; those of adjacent free blocks were released
  // before.
  const std::size_t first = std::max(huge_pages(item->first), huge_pages_before(at));
  const std::size_t last =
      std::min(huge_pages_before(item->first + item->second), huge_pages(at + bytes));
  if (first < last) mapped_.chunk_at(at).release(first - chunk_begin, last - first);
}

}  // namespace tandem::shm
