// Hands out a rank's part of the shared memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "comm/shm/segment.h"

namespace tandem::shm {

// First fit, in whole pages. Memory is taken and given back in whole huge pages, in small ones only
// where the machine has no room for that. Thread-safe. Memory keeps its arena, and the arena the
// mapping.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);

  // Null when the range, or the machine, has no room.
  std::shared_ptr<void> allocate(std::size_t bytes);
  // Where in the arena it begins; -1 when not all of [data, data + bytes) is in it.
  std::int64_t offset_of(const void* data, std::size_t bytes) const;

 private:
  void deallocate(std::size_t at, std::size_t bytes) noexcept;
  bool reserve(std::size_t at, std::size_t bytes) const;

  std::shared_ptr<const Segment> segment_;
  std::size_t begin_, bytes_;  // in whole huge pages
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // begin -> bytes; neighbours are joined
};

}  // namespace tandem::shm
