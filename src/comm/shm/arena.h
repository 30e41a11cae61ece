// The shared memory that a rank's buffers are allocated in.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/shm/segment.h"

namespace tandem::shm {

// The chunks of an arena. Each chunk but the first is as large as all earlier ones together. A peer
// therefore maps few chunks, little more memory than is used, and computes the chunk from an
// offset.
struct ArenaChunk {
  static constexpr std::size_t kFirstBytes = std::size_t{16} << 20;

  static int index_of(std::size_t offset) {
    return static_cast<int>(std::bit_width(offset / kFirstBytes));
  }
  static std::size_t begin_of(int index) { return index == 0 ? 0 : kFirstBytes << (index - 1); }
  static std::size_t end_of(int index) { return kFirstBytes << index; }
};

// An arena, this rank's or a peer's, as far as this process has mapped it.
class MappedArena {
 public:
  // The `bytes` of the segment that start at `begin`.
  MappedArena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);

  // The address of [offset, offset + bytes) in this process; maps its chunk if necessary. Null if
  // the range is not within one chunk, so that no buffer can be there. Throws
  // ResourceExhaustedError.
  std::byte* map(std::size_t offset, std::size_t bytes);
  // The offset of [data, data + bytes) in the arena; -1 if it is not within one mapped chunk.
  // Thread-safe.
  std::int64_t offset_of(const void* data, std::size_t bytes) const;
  // REQUIRES: the offset has been mapped.
  const MappedRange& chunk_at(std::size_t offset) const {
    return *chunks_[static_cast<std::size_t>(ArenaChunk::index_of(offset))];
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kChunks = 32;

  std::shared_ptr<const Segment> segment_;
  std::size_t begin_, bytes_;
  std::array<std::optional<MappedRange>, kChunks> chunks_;
  std::array<std::atomic<std::byte*>, kChunks> data_ = {};  // of each chunk; null: not mapped
};

// Allocates from a rank's own arena: first fit, in whole pages. Memory is committed and released in
// huge pages, or in small ones if the host has no room for those. Thread-safe. Allocations keep the
// arena alive.
class ShmArena : public std::enable_shared_from_this<ShmArena> {
 public:
  // `bytes`: a multiple of the huge page size.
  ShmArena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);

  // Null if the arena, the host or this process's address space has no room.
  std::shared_ptr<void> allocate(std::size_t bytes);
  std::int64_t offset_of(const void* data, std::size_t bytes) const {
    return mapped_.offset_of(data, bytes);
  }

 private:
  void deallocate(std::size_t at, std::size_t bytes) noexcept;
  std::byte* take(std::size_t at, std::size_t bytes);

  MappedArena mapped_;
  std::mutex mutex_;
  // begin -> bytes; adjacent free blocks of a chunk are merged
  std::map<std::size_t, std::size_t> free_;
};

}  // namespace tandem::shm
