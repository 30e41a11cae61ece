// One rank's view of the memory that a group shares: its parts, its flags, its end.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "comm/shm/arena.h"
#include "comm/shm/layout.h"
#include "comm/shm/peer_copy.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm_backend.h"
#include "tandem/errors.h"

namespace tandem::shm {

class Group {
 public:
  // Waits until every rank has made its own. Where one cannot, all throw what that one throws.
  explicit Group(ShmOptions options);
  ~Group();

  const ShmOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RankNames& names() const { return options_.names; }
  const Layout& layout() const { return layout_; }
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
    return memory_ + layout_.ring(index(rank)) + number % kRingPieces * layout_.piece_bytes();
  }
  // The buffer of `bytes` bytes that a peer says is at `offset` of its arena. Throws DataLossError
  // where it cannot be, ResourceExhaustedError where this process has no address space for it.
  std::byte* buffer_of(int peer, std::int64_t offset, std::size_t bytes);
  // The memory of messages between two ranks. Throws ResourceExhaustedError.
  std::unique_ptr<MappedRange> map_channel(int from, int to) const;

  // Access to the buffers of peers, while this lives. Denied once a rank has failed: from then on
  // they belong to whoever owns them.
  class PeerAccess {
   public:
    explicit PeerAccess(const Group& group);
    ~PeerAccess() { in_peers_.store(0, std::memory_order_release); }
    PeerAccess(const PeerAccess&) = delete;
    PeerAccess& operator=(const PeerAccess&) = delete;
    bool granted() const { return granted_; }

   private:
    std::atomic<std::uint32_t>& in_peers_;
    bool granted_;
  };

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
  // Ends the group for all ranks, with this error unless a peer was first. Returns when no peer
  // reads or writes this rank's buffers any more, and none will: the caller may free them. A peer
  // that does not run is waited for no longer than kPatience.
  void set_failure(GroupFailure failure, const std::string& text) noexcept;
  // Whether the rank has left, or its process has ended. What it did before is seen from then on.
  bool is_gone(int peer) const;
  // Throws AbortedError that tells what this rank was waiting for. REQUIRES: is_gone(peer).
  [[noreturn]] void throw_gone(int peer, const std::string& waiting_for) const;

 private:
  static constexpr std::chrono::seconds kPatience{10};  // with a peer that does not run

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  template <class T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  bool shares_core() const;
  std::uint64_t beats_of_peers() const;
  void map_common();
  Segment open_segment() const;
  std::string name_from_rank_0() const;
  std::string find_name() const;  // what is in its place at present; empty: nothing
  void tell_through_store(const Error& error) const noexcept;
  void hear_through_store();
  void join();
  void wait_for_ranks();
  void forget_name();
  void withdraw_name(const Error& error) noexcept;
  [[noreturn]] void throw_missing();
  void sleep_until_bell(std::chrono::microseconds limit, const auto& waiting);
  void wait_for_peer_access() const noexcept;
  [[noreturn]] void throw_failure() const;

  ShmOptions options_;
  Layout layout_;
  std::shared_ptr<Segment> segment_;
  std::optional<MappedRange> common_;  // state and rings
  std::byte* memory_ = nullptr;        // the same
  GroupState* state_ = nullptr;
  RankState* mine_ = nullptr;
  std::shared_ptr<Arena> arena_;
  std::deque<MappedArena> arenas_;  // the peers', by rank
  PeerCopy peer_copy_;
  bool crowded_ = false;
  std::uint64_t taken_by_all_ = 0, completed_by_all_ = 0;  // at least
  std::uint64_t heard_ = 0;                                // beats of the peers
};

}  // namespace tandem::shm
