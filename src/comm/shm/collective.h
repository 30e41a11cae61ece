// The protocol of a collective in shared memory.
//
// A rank (1) publishes its call in a slot, with its signature, (2) puts pieces of its data into its
// ring, (3) reduces its slice of each piece, and (4) takes what it needs from the other ranks'
// rings. Each step waits for a flag of the peers, and advance() runs as many steps as the flags
// allow. Pieces are numbered consecutively over all collectives, with the same numbers on every
// rank. Every step of a collective therefore waits for the same step of the previous one. A rank is
// at most kRingPieces ahead of the slowest.
#pragma once

#include <deque>
#include <string>

#include "comm/shm/shm_data_exchange.h"

namespace tandem::shm {

// An operation of this backend.
class ShmOperation : public BackendOperation {
 public:
  // Whether this rank still waits for something from `peer`.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string description() const = 0;
};

class CollectiveQueue;

class ShmCollective final : public ShmOperation {
 public:
  ShmCollective(ShmGroup& group, CollectiveQueue& queue, const Collective& collective);
  ~ShmCollective() override;
  bool advance() override;
  std::uint64_t steps() const override;
  std::vector<int> missing() const override;
  bool waits_for(int peer) const override;
  bool help() override;
  std::string description() const override;

 private:
  friend class CollectiveQueue;

  // Runs every step that the flags allow. `before`: the previous collective, null if that is
  // complete.
  void step(const ShmCollective* before);
  bool call(const ShmCollective* before);
  void publish();
  bool all_have_called();
  void make_plan();
  void process_directly();
  // Reduces the next stretch of the rank's slice. False if none is left or the group has failed.
  bool process_stretch(int rank);
  bool may_put() const;
  void put_piece();
  std::int64_t piece_bytes() const;
  void move_pieces();
  bool all_agree_on_counts();
  // Whether `flag` of every rank's call exceeds `piece`. `next`: the rank to resume the search at.
  bool all_past(std::atomic<std::uint32_t> CallSlot::*flag, std::uint32_t piece, int& next) const;
  [[noreturn]] void throw_mismatch() const;
  CallSlot& my_call() const { return group_.call(group_.rank(), collective_.sequence); }

  ShmGroup& group_;
  CollectiveQueue& queue_;
  const Collective& collective_;
  ShmDataExchange data_;
  ShmPlan plan_;
  std::uint64_t first_ = 0;  // number of the first piece
  std::uint64_t turn_ = 0;   // its number among collectives of its size (PeerCopy)
  bool called_ = false, checked_ = false, planned_ = false, done_ = false;
  bool direct_done_ = false;
  std::uint32_t put_ = 0, reduced_ = 0, taken_ = 0;  // pieces
  // The ranks below these have raised the flag.
  int next_called_ = 0, next_put_ = 0, next_reduced_ = 0, next_shared_ = 0;
};

// The open collectives, in order. One that completes before an earlier one keeps its position, as
// null once it is destroyed, so that positions remain sequence numbers.
class CollectiveQueue {
 public:
  explicit CollectiveQueue(ShmGroup& group) : group_(group) {}
  void add(ShmCollective& collective) { open_.push_back(&collective); }
  // REQUIRES: it is complete, or the group has failed.
  void forget(const ShmCollective& collective);
  // Advances all collectives up to `last`.
  void advance(const ShmCollective& last);
  // Does part of a slow rank's work in one of those.
  bool help(const ShmCollective& last);

 private:
  friend class ShmCollective;
  ShmGroup& group_;
  std::deque<ShmCollective*> open_;    // null: complete and destroyed
  std::uint64_t pieces_ = 0;           // of the collectives that have a plan
  std::uint64_t put_ = 0, taken_ = 0;  // pieces; in order
  std::uint64_t completed_ = 0;        // collectives without an earlier open one
  std::uint64_t steps_ = 0;            // of all collectives
  std::uint64_t announced_steps_ = 0;  // the value of steps_ at the last wake-up of sleepers
};

}  // namespace tandem::shm
