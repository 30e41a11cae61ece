// The protocol of a collective: who may touch what when.
//
// A rank calls (its signature is there for all to see), puts pieces into its ring, reduces its
// slice of each, and takes what it needs from the others' rings; each step waits for a flag of the
// peers, and advance() does as many steps as the flags allow. Pieces are numbered through all
// collectives, the same on every rank, which is why a collective takes its turn behind the one
// before it at every step; a rank is at most kRingPieces ahead of the slowest.
#pragma once

#include <deque>
#include <string>

#include "comm/shm/moves.h"

namespace tandem::shm {

// An operation of this backend.
class ShmOperation : public BackendOperation {
 public:
  // Whether this rank still needs something of `peer`.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string description() const = 0;
};

class CollectiveQueue;

class ShmCollective final : public ShmOperation {
 public:
  ShmCollective(Group& group, CollectiveQueue& queue, const Collective& collective);
  ~ShmCollective() override;
  bool advance() override;
  std::uint64_t steps() const override;
  std::vector<int> missing() const override;
  bool waits_for(int peer) const override;
  bool help() override;
  std::string description() const override;

 private:
  friend class CollectiveQueue;

  // Every step that the flags allow; `before`: the collective before this one, unless complete.
  void step(const ShmCollective* before);
  bool call(const ShmCollective* before);
  void publish();
  bool all_have_called();
  void make_plan();
  void perform_directly();
  // Reduces the next stretch of the rank's slice; false where none is left or the group failed.
  bool perform_stretch(int rank);
  bool may_put() const;
  void put_piece();
  std::int64_t piece_bytes() const;
  void move_pieces();
  bool all_agree_on_counts();
  // Whether `flag` of every rank's call has gone past `piece`; `next` is where it left off.
  bool all_past(std::atomic<std::uint32_t> Call::*flag, std::uint32_t piece, int& next) const;
  [[noreturn]] void throw_parting() const;
  Call& my_call() const { return group_.call(group_.rank(), collective_.sequence); }

  Group& group_;
  CollectiveQueue& queue_;
  const Collective& collective_;
  Moves moves_;
  Plan plan_;
  std::uint64_t first_ = 0;  // number of the first piece
  std::uint64_t turn_ = 0;   // its number among those of its size (PeerCopy)
  bool called_ = false, checked_ = false, planned_ = false, done_ = false;
  bool direct_done_ = false;
  std::uint32_t put_ = 0, reduced_ = 0, taken_ = 0;  // pieces
  // Ranks up to here are past the flag.
  int next_called_ = 0, next_put_ = 0, next_reduced_ = 0, next_shared_ = 0;
};

// The collectives under way, in order. One that completes before an earlier one stays in its place,
// as null once it is destroyed, so that collectives are counted in order.
class CollectiveQueue {
 public:
  explicit CollectiveQueue(Group& group) : group_(group) {}
  void add(ShmCollective& collective) { open_.push_back(&collective); }
  // REQUIRES: it is complete, or the group has ended.
  void forget(const ShmCollective& collective);
  // Advances all up to `last`.
  void advance(const ShmCollective& last);
  // Helps with one of those.
  bool help(const ShmCollective& last);

 private:
  friend class ShmCollective;
  Group& group_;
  std::deque<ShmCollective*> open_;    // null: complete, and destroyed
  std::uint64_t pieces_ = 0;           // of the collectives that have a plan
  std::uint64_t put_ = 0, taken_ = 0;  // pieces; in order
  std::uint64_t completed_ = 0;        // collectives that no open one precedes
  std::uint64_t steps_ = 0;            // of all of them
  std::uint64_t told_ = 0;             // steps that sleepers have been woken for
};

}  // namespace tandem::shm
