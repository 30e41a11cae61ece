// One rank's view of a group's shared memory: its ranks' states, its flags and its failure.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "comm/process/group_options.h"
#include "comm/shm/arena.h"
#include "comm/shm/layout.h"
#include "comm/shm/peer_copy.h"
#include "comm/shm/segment.h"
#include "tandem/errors.h"

namespace tandem::shm {

class ShmGroup {
 public:
  // Waits until every rank has created its own. If one cannot, all throw that rank's error.
  explicit ShmGroup(GroupOptions options);
  ~ShmGroup();

  const GroupOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RankNames& names() const { return options_.names; }
  const SegmentLayout& layout() const { return layout_; }
  // Whether spinning would take CPU time from a rank of this group.
  bool oversubscribed() const { return oversubscribed_ || shares_core(); }
  ShmArena& arena() { return *arena_; }
  PeerCopy& peer_copy() { return peer_copy_; }

  RankState& state(int rank) const { return at<RankState>(layout_.rank_state(index(rank))); }
  RankState& mine() const { return *mine_; }
  CallSlot& call(int rank, std::uint64_t sequence) const {
    return state(rank).calls[sequence % kSlots];
  }
  // Whether the rank has called collective `sequence`. REQUIRES: this rank has not completed it.
  bool has_called(int rank, std::uint64_t sequence) const {
    return call(rank, sequence).number.load(std::memory_order_acquire) == sequence + 1;
  }
  std::byte* piece(int rank, std::uint64_t number) const {
    return memory_ + layout_.ring(index(rank)) + number % kRingPieces * layout_.piece_bytes();
  }
  // The buffer of `bytes` bytes that a peer has published at `offset` of its arena. Throws
  // DataLossError if it is outside the arena, ResourceExhaustedError if this process has no address
  // space for it.
  std::byte* buffer_of(int peer, std::int64_t offset, std::size_t bytes);
  // Maps the memory of messages between two ranks. Throws ResourceExhaustedError.
  std::unique_ptr<MappedRange> map_channel(int from, int to) const;

  // Permits access to peers' buffers during its lifetime. Not granted once a rank has failed: from
  // then on the owners may free the buffers.
  class PeerAccess {
   public:
    explicit PeerAccess(const ShmGroup& group);
    ~PeerAccess() { in_peers_.store(0, std::memory_order_release); }
    PeerAccess(const PeerAccess&) = delete;
    PeerAccess& operator=(const PeerAccess&) = delete;
    bool granted() const { return granted_; }

   private:
    std::atomic<std::uint32_t>& in_peers_;
    bool granted_;
  };

  // Whether no rank still needs the contents that this rank's piece `number`, or its call
  // `sequence`, will overwrite.
  bool piece_is_free(std::uint64_t number);
  bool call_is_free(std::uint64_t sequence);

  // Called after this rank has raised flags.
  void wake_sleepers() noexcept;
  // Sleeps until a peer has raised a flag, or `limit` has passed. Returns at once if a flag was
  // raised since the last call, so that the caller checks the flags between sleeps.
  void wait_for_peers(std::chrono::microseconds limit);

  // Throws the error of the first rank that failed.
  void throw_if_failed() const {
    if (state_->failure.load(std::memory_order_relaxed) != 0) [[unlikely]]
      throw_failure();
  }
  // Aborts the group for all ranks with this error, unless a peer has failed earlier. Returns when
  // no peer accesses this rank's buffers and none will again: the caller may free them. Waits at
  // most kPatience for a peer that does not run.
  void abort(GroupFailure failure, const std::string& text) noexcept;
  // Whether the rank has left or its process has ended. Its earlier writes are visible from then
  // on.
  bool is_gone(int peer) const;
  // Throws AbortedError that says what this rank was waiting for. REQUIRES: is_gone(peer).
  [[noreturn]] void throw_gone(int peer, const std::string& waiting_for) const;

 private:
  static constexpr std::chrono::seconds kPatience{10};  // for a peer that does not run

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
  std::string find_name() const;  // the segment that is published at present; empty: none
  void publish_failure(const Error& error) const noexcept;
  void collect_failures();
  void join();
  void wait_for_ranks();
  void remove_name();
  void publish_failed_start(const Error& error) noexcept;
  // Names the ranks that have not joined for a time.
  std::string describe_missing(std::chrono::milliseconds time) const;
  void sleep_until_bell(std::chrono::microseconds limit, const auto& waiting);
  void wait_for_peer_access() const noexcept;
  [[noreturn]] void throw_failure() const;

  GroupOptions options_;
  SegmentLayout layout_;
  std::shared_ptr<Segment> segment_;
  std::optional<MappedRange> common_;  // state and rings
  std::byte* memory_ = nullptr;        // data() of common_
  GroupState* state_ = nullptr;
  RankState* mine_ = nullptr;
  std::shared_ptr<ShmArena> arena_;
  std::deque<MappedArena> arenas_;  // the peers', by rank
  PeerCopy peer_copy_;
  bool oversubscribed_ = false;
  bool crowded_ = false;  // so many ranks per core that waking each other would take them
  std::uint64_t taken_by_all_ = 0, completed_by_all_ = 0;  // lower bounds
  std::uint64_t beats_seen_ = 0;                           // sum of the peers' beats
};

}  // namespace tandem::shm
