// Memory in which a task puts attachments for other tasks of its host. A block in it belongs to the
// sender until the receiver takes it. The receiver marks it free in the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/shm/arena.h"
#include "comm/shm/segment.h"
#include "rpc/message.h"

namespace tandem::rpc {

struct BlockPlace {
  std::uint64_t offset = 0;    // of the block
  std::uint64_t sequence = 0;  // that of another use of the block differs
  std::uint64_t bytes = 0;     // of the attachment
};

// The receiver of a block, and the end of the call.
struct Delivery {
  ProcessIdentity receiver;
  std::chrono::steady_clock::time_point deadline;
};

// The sender's side. Thread-safe. Reserved memory keeps it alive.
class Area : public std::enable_shared_from_this<Area> {
 public:
  // The address space of an area. Memory is committed as it is used, and kept.
  static constexpr std::size_t kBytes = std::size_t{256} << 20;

  // Throws ResourceExhaustedError.
  Area();
  ~Area();
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  const std::string& name() const { return segment_->name(); }
  // Memory within a block, which put() does not copy if it gets all of it. Null if there is no
  // room. REQUIRES: the area belongs to a shared_ptr.
  std::shared_ptr<std::byte> reserve(std::size_t bytes);
  // Copies the bytes into a block, unless they are reserved memory that no receiver has. Nothing if
  // there is no room.
  std::optional<BlockPlace> put(std::span<const std::byte> bytes, const Delivery& delivery);
  // Takes back a block that no receiver has taken; otherwise does nothing.
  void revoke(const BlockPlace& place);

 private:
  struct Block {
    std::shared_ptr<void> memory;
    std::size_t capacity;
    Delivery delivery = {};
    std::size_t reserved = 0;  // the size of the reserved memory
  };
  Block* reserved_at(std::span<const std::byte> bytes);
  void end_reservation(std::uint64_t offset);
  // A block for that many bytes; null if there is no room.
  Block* find(std::size_t bytes);
  Block* find_free(std::size_t bytes);
  Block* add(std::size_t bytes);
  BlockPlace send(Block& block, std::size_t bytes, const Delivery& delivery);
  std::uint64_t offset_of(const Block& block) const;
  void reclaim();

  const std::shared_ptr<const Segment> segment_;
  const std::shared_ptr<shm::ShmArena> arena_;
  const std::shared_ptr<void> status_;  // the first page, for receivers
  std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;  // by offset
  std::uint64_t sequence_ = 0;
};

// The receiver's side: the areas of other tasks. Thread-safe.
class PeerAreas {
 public:
  // The bytes of a block, which is the sender's again once nothing owns them. Throws DataLossError
  // if there is no such block, or if the sender has revoked it.
  Attachment take(const std::string& area, const BlockPlace& place);

 private:
  struct Mapping;
  std::shared_ptr<Mapping> find(const std::string& area);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Mapping>> mappings_;
};

}  // namespace tandem::rpc
