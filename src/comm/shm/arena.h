// The memory that a rank shares with its peers: the parts of the file that ranks' buffers lie in.
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

// Where an arena is cut. Each chunk but the first is as long as all before it together, so that
// whoever maps the chunks that are used maps few of them, and not much more than is used; and who
// knows an offset knows the chunk.
struct ArenaChunk {
  static constexpr std::size_t kFirstBytes = std::size_t{16} << 20;

  static int index_of(std::size_t offset) {
    return static_cast<int>(std::bit_width(offset / kFirstBytes));
  }
  static std::size_t begin_of(int index) { return index == 0 ? 0 : kFirstBytes << (index - 1); }
  static std::size_t end_of(int index) { return kFirstBytes << index; }
};

// An arena as far as this process has mapped it: its own, or a peer's.
class MappedArena {
 public:
  // `bytes` from `begin` on of the segment.
  MappedArena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);

  // Where [offset, offset + bytes) of the arena is in this process; maps it first if need be. Null
  // when that is not within one of its chunks: no buffer lies there. Throws ResourceExhaustedError.
  std::byte* map(std::size_t offset, std::size_t bytes);
  // Where in the arena [data, data + bytes) is; -1 when not all of it is in one. Thread-safe.
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
  std::array<std::atomic<std::byte*>, kChunks> data_ = {};  // of each; null: not mapped
};

// Hands out a rank's own arena. First fit, in whole pages. Memory is taken and given back in whole
// huge pages, in small ones only where the machine has no room for that. Thread-safe. Memory keeps
// its arena.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // `bytes`: in whole huge pages.
  Arena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);

  // Null when the range, the machine, or this process's address space has no room.
  std::shared_ptr<void> allocate(std::size_t bytes);
  std::int64_t offset_of(const void* data, std::size_t bytes) const {
    return mapped_.offset_of(data, bytes);
  }

 private:
  void deallocate(std::size_t at, std::size_t bytes) noexcept;
  std::byte* take(std::size_t at, std::size_t bytes);

  MappedArena mapped_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // begin -> bytes; neighbours of a chunk are joined
};

}  // namespace tandem::shm
