// One rank's view of the memory that a group shares: its parts, its flags, its end.
#pragma once

#include <memory>
#include <string>

#include "comm/shm/arena.h"
#include "comm/shm/layout.h"
#include "comm/shm/peer_copy.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm_backend.h"

namespace tandem::shm {

class Group {
 public:
  // Waits until every rank has made its own.
  explicit Group(ShmOptions options);
  ~Group();

  const ShmOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  // Whether spinning keeps a rank of this group from its work.
  bool crowded() const { return crowded_ || shares_core(); }
  Arena& arena() { return *arena_; }
  PeerCopy& peer_copy() { return peer_copy_; }

  RankState& state(int rank) const { return at<RankState>(layout_.rank_state(index(rank))); }
  RankState& mine() const { return *mine_; }
  Call& call(int rank, std::uint64_t sequence) const {
    return state(rank).calls[sequence % kSlots];
  }
  // Whether the rank has called collective `sequence`. REQUIRES: this rank has not completed it.
  bool has_called(int rank, std::uint64_t sequence) const {
    return call(rank, sequence).number.load(std::memory_order_acquire) == sequence + 1;
  }
  std::byte* piece(int rank, std::uint64_t number) const {
    return memory_ + layout_.ring(index(rank)) + number % kRingPieces * kPieceBytes;
  }
  std::byte* arena_of(int rank) const { return memory_ + layout_.arena(index(rank)); }
  ChannelState& channel_state(int from, int to) const {
    return at<ChannelState>(layout_.channel_state(index(from), index(to)));
  }
  std::byte* channel_piece(int from, int to, std::uint64_t number) const {
    return memory_ + layout_.channel(index(from), index(to)) +
           number % kChannelPieces * (sizeof(PieceHeader) + kChannelPieceBytes);
  }
  // Takes memory for the channel's pieces. Throws ResourceExhaustedError.
  void reserve_channel(int from, int to) const;

  // Whether every rank is done with what this rank's piece `number`, or its call `sequence`, will
  // overwrite.
  bool piece_is_free(std::uint64_t number);
  bool call_is_free(std::uint64_t sequence);

  // Behind flags that this rank has raised.
  void wake_sleepers() noexcept;
  // Sleeps until a peer has raised a flag, or `limit` has passed. Returns at once where one has
  // since the last call, so that this rank looks at the flags in between.
  void wait_for_peers(std::chrono::microseconds limit);

  // Throws what the first rank to fail has failed with.
  void throw_if_failed() const {
    if (state_->failure.load(std::memory_order_relaxed) != 0) [[unlikely]]
      throw_failure();
  }
  void set_failure(GroupFailure failure, const std::string& text) noexcept;
  // Throws AbortedError when the rank is gone or has left, telling what this rank was waiting for.
  void check_peer(int peer, const std::string& waiting_for) const;

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  template <class T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  bool shares_core() const;
  std::uint64_t beats_of_peers() const;
  std::shared_ptr<Segment> find_segment();
  void wait_for_ranks();
  [[noreturn]] void throw_failure() const;

  ShmOptions options_;
  Layout layout_;
  std::shared_ptr<Segment> segment_;
  std::byte* memory_ = nullptr;
  GroupState* state_ = nullptr;
  RankState* mine_ = nullptr;
  std::shared_ptr<Arena> arena_;
  PeerCopy peer_copy_;
  bool crowded_ = false;
  std::uint64_t taken_by_all_ = 0, completed_by_all_ = 0;  // at least
  std::uint64_t heard_ = 0;                                // beats of the peers
};

}  // namespace tandem::shm
