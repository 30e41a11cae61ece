// The layout of a group's shared memory.
//
// A value that one rank writes and others poll has its own cache line. There are no locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/process/announcement.h"
#include "comm/process/backend.h"
#include "comm/shm/segment.h"
#include "comm/signature.h"

namespace tandem::shm {

inline constexpr std::size_t kLine = 64, kPage = 4096;
inline constexpr std::uint64_t kSlots = 64;       // open collectives per rank
inline constexpr std::uint64_t kRingPieces = 16;  // pieces that a rank may be ahead of its peers
inline constexpr std::size_t kPieceBytes = std::size_t{128} << 10;  // minimum
// pieces that a sender may be ahead of its receiver
inline constexpr std::uint64_t kChannelPieces = 4;
inline constexpr std::size_t kChannelPieceBytes = std::size_t{64} << 10;

// A rank's call of one collective: its signature and its progress. One cache line, so that polling
// the flag also loads the signature.
struct alignas(kLine) CallSlot {
  std::atomic<std::uint64_t> number;  // sequence + 1 once the other fields are valid
  Signature signature;
  std::int64_t offset;                 // of the rank's input in its arena; -1: it is elsewhere
  std::atomic<std::uint32_t> put;      // pieces copied to the rank's ring
  std::atomic<std::uint32_t> reduced;  // pieces whose slice the rank has reduced
  // The direct method divides a rank's slice into stretches, which other ranks may process, too.
  std::atomic<std::uint32_t> claimed;  // stretches that a rank has started; may exceed their number
  std::atomic<std::uint32_t> shared;   // stretches that are done
};
static_assert(sizeof(CallSlot) == kLine);

// For error messages only.
struct alignas(kLine) CallLabel {
  std::int64_t step;
  char name[kLine - sizeof(std::int64_t)];
};

struct RankState {
  alignas(kLine) std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> left;
  ProcessIdentity process;
  alignas(kLine) std::atomic<std::uint64_t> taken;  // pieces of all rings that it no longer needs
  std::atomic<std::uint64_t> completed;             // collectives
  // Whether the rank accesses its peers' buffers (ShmGroup::PeerAccess). Only this rank writes it.
  alignas(kLine) std::atomic<std::uint32_t> in_peers;
  alignas(kLine) std::atomic<std::uint64_t> beat;  // incremented after the rank has raised flags
  std::atomic<std::int32_t> core;  // the core where it last waited or called, plus 1
  CallSlot calls[kSlots];
  CallLabel labels[kSlots];
};

struct GroupState {
  alignas(kLine) std::atomic<std::uint32_t> joined;   // ranks
  alignas(kLine) std::atomic<std::uint32_t> claimed;  // set by the first rank that fails
  std::atomic<std::uint32_t> failure;  // a GroupFailure, once the message is complete
  char text[4096 - 2 * sizeof(std::uint32_t)];
  alignas(kLine) std::atomic<std::uint32_t> sleepers;  // ranks that sleep until the bell changes
  alignas(kLine) std::atomic<std::uint32_t> bell;
};

// A message between two ranks is transferred in pieces, each with a header.
struct alignas(kLine) ChannelState {
  alignas(kLine) std::atomic<std::uint64_t> written;  // pieces
  alignas(kLine) std::atomic<std::uint64_t> read;
};
struct alignas(kLine) PieceHeader {
  MessageHeader message;  // the whole one
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Rounded up to whole pages.
constexpr std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
constexpr std::size_t huge_pages(std::size_t bytes) {
  return (bytes + Segment::kHugePage - 1) / Segment::kHugePage * Segment::kHugePage;
}
// Rounded down.
constexpr std::size_t huge_pages_before(std::size_t bytes) {
  return bytes / Segment::kHugePage * Segment::kHugePage;
}

// The order of the file: the group's state, one state per rank, the rings, the arenas, then the
// channels between each pair of ranks. Every rank maps the first three when it joins, and the parts
// of the others that it uses. Rings and arenas start at a huge page.
class SegmentLayout {
 public:
  // The size of each rank's arena in the file; its unused parts take no memory.
  static constexpr std::size_t kArenaBytes = std::size_t{16} << 40;
  static constexpr std::size_t kChannelBytes =
      pages(sizeof(ChannelState) + kChannelPieces * (sizeof(PieceHeader) + kChannelPieceBytes));

  explicit SegmentLayout(std::size_t ranks)
      : ranks_(ranks),
        piece_bytes_((ranks * kLeastShare + kPieceBytes - 1) / kPieceBytes * kPieceBytes) {}

  std::size_t ranks() const { return ranks_; }
  // The size of a piece of a ring.
  std::size_t piece_bytes() const { return piece_bytes_; }
  // The size of each rank's share of a piece.
  std::size_t share_bytes() const { return piece_bytes_ / ranks_ / kLine * kLine; }
  std::size_t ring_bytes() const { return kRingPieces * piece_bytes_; }

  std::size_t rank_state(std::size_t rank) const {
    return sizeof(GroupState) + rank * sizeof(RankState);
  }
  std::size_t state_bytes() const { return pages(rank_state(ranks_)); }
  std::size_t ring(std::size_t rank) const {
    return huge_pages(state_bytes()) + rank * ring_bytes();
  }
  // State and rings.
  std::size_t common_bytes() const { return ring(ranks_); }
  std::size_t arena(std::size_t rank) const { return common_bytes() + rank * kArenaBytes; }
  std::size_t channel(std::size_t from, std::size_t to) const {
    return arena(ranks_) + (from * ranks_ + to) * kChannelBytes;
  }
  std::size_t total() const { return channel(ranks_, 0); }

 private:
  // A header of an all-to-all and as much data.
  static constexpr std::size_t kLeastShare = 2 * kLine;
  static_assert(kRingPieces * kPieceBytes % Segment::kHugePage == 0);

  std::size_t ranks_, piece_bytes_;
};

}  // namespace tandem::shm
