#include "comm/shm/collective.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"

namespace tandem::shm {

void CollectiveQueue::forget(const ShmCollective& collective) {
  std::replace(open_.begin(), open_.end(), const_cast<ShmCollective*>(&collective),
               static_cast<ShmCollective*>(nullptr));
}

void CollectiveQueue::advance(const ShmCollective& last) {
  const ShmCollective* before = nullptr;
  for (ShmCollective* collective : open_) {
    if (collective && !collective->done_) collective->step(before);
    before = collective;
    if (collective == &last) break;
  }
  bool popped = false;
  while (!open_.empty() && (!open_.front() || open_.front()->done_)) {
    open_.pop_front();
    ++completed_;
    popped = true;
  }
  if (popped) group_.mine().completed.store(completed_, std::memory_order_release);
  if (popped || std::exchange(announced_steps_, steps_) != steps_) group_.wake_sleepers();
  // If `last` has completed, a failure of a later collective does not concern it.
  if (!last.done_) group_.throw_if_failed();
}

bool CollectiveQueue::help(const ShmCollective& last) {
  for (ShmCollective* collective : open_) {
    if (collective && !collective->done_ && collective->planned_ && collective->plan_.stretches > 0)
      for (int i = 1; i < group_.size(); ++i)
        if (collective->process_stretch((group_.rank() + i) % group_.size())) return true;
    if (collective == &last) break;
  }
  return false;
}

ShmCollective::ShmCollective(ShmGroup& group, CollectiveQueue& queue, const Collective& collective)
    : group_(group), queue_(queue), collective_(collective), data_(group, collective) {
  queue_.add(*this);
}

// A caller that destroys an open collective is about to free its buffers.
ShmCollective::~ShmCollective() {
  if (!done_ && called_ && data_.offset() >= 0)
    group_.abort(
        GroupFailure::kAborted,
        fmt::format("rank {} (pid {}) has left the group before {} had ended",
                    group_.names()[group_.rank()], group_.mine().process.pid, description()));
  queue_.forget(*this);
}

bool ShmCollective::advance() {
  if (!done_) queue_.advance(*this);
  return done_;
}

bool ShmCollective::help() { return queue_.help(*this); }

void ShmCollective::step(const ShmCollective* before) {
  if (!called_ && !call(before)) return;
  if (!checked_) checked_ = all_have_called();
  if (!planned_) {
    if (!checked_ || (before && !before->planned_)) return;
    make_plan();
  }
  if (plan_.method == ShmPlan::Method::kDirect)
    process_directly();
  else
    move_pieces();
}

// Small data is put into the ring before the call is published, so that one flag announces both.
bool ShmCollective::call(const ShmCollective* before) {
  if (before && !before->called_) return false;
  // A failed peer has not completed a collective that this rank has not called. No rank will.
  group_.throw_if_failed();
  if (!group_.call_is_free(collective_.sequence)) return false;
  if (data_.small()) {
    if (!planned_) {
      if (before && !before->planned_) return false;
      make_plan();
    }
    if (plan_.pieces > 0) {
      if (!may_put()) return false;
      put_piece();
    }
  }
  publish();
  called_ = true;
  ++queue_.steps_;
  return true;
}

void ShmCollective::publish() {
  const std::uint64_t sequence = collective_.sequence;
  CallLabel& label = group_.mine().labels[sequence % kSlots];
  label.step = collective_.label.step;
  const std::size_t length = std::min(collective_.label.name.size(), sizeof(label.name) - 1);
  std::memcpy(label.name, collective_.label.name.data(), length);
  label.name[length] = 0;

  CallSlot& call = my_call();
  call.signature = collective_.signature;
  call.offset = data_.offset();
  call.put.store(put_, std::memory_order_relaxed);
  call.reduced.store(0, std::memory_order_relaxed);
  call.claimed.store(0, std::memory_order_relaxed);
  call.shared.store(0, std::memory_order_relaxed);
  call.number.store(sequence + 1, std::memory_order_release);
}

bool ShmCollective::all_have_called() {
  for (; next_called_ < group_.size(); ++next_called_) {
    if (!group_.has_called(next_called_, collective_.sequence)) return false;
    if (!matches(collective_.signature, group_.call(next_called_, collective_.sequence).signature))
      throw_mismatch();
  }
  return true;
}

void ShmCollective::make_plan() {
  plan_ = data_.make_plan();
  first_ = queue_.pieces_;
  queue_.pieces_ += plan_.pieces;
  turn_ = group_.peer_copy().expect(piece_bytes(), plan_.pieces);
  planned_ = true;
}

void ShmCollective::process_directly() {
  if (plan_.stretches > 0) {
    while (process_stretch(group_.rank())) continue;
    done_ = all_past(&CallSlot::shared, plan_.stretches - 1, next_shared_);
    return;
  }
  if (!direct_done_) {
    const ShmGroup::PeerAccess access(group_);
    if (!access.granted()) return;
    data_.process_directly();
    direct_done_ = true;
    ++queue_.steps_;
    my_call().reduced.store(1, std::memory_order_release);
  }
  done_ = all_past(&CallSlot::reduced, 0, next_reduced_);
}

bool ShmCollective::process_stretch(int rank) {
  CallSlot& call = group_.call(rank, collective_.sequence);
  if (call.claimed.load(std::memory_order_relaxed) >= plan_.stretches) return false;
  const ShmGroup::PeerAccess access(group_);
  if (!access.granted()) return false;
  const std::uint32_t k = call.claimed.fetch_add(1, std::memory_order_relaxed);
  if (k >= plan_.stretches) return false;
  data_.process_directly(plan_, rank, k);
  call.shared.fetch_add(1, std::memory_order_release);
  ++queue_.steps_;
  return true;
}

bool ShmCollective::may_put() const {
  return queue_.put_ == first_ + put_ && group_.piece_is_free(queue_.put_);
}

void ShmCollective::put_piece() {
  {
    const PeerCopy::TimedWork work(group_.peer_copy(), turn_ + put_, piece_bytes());
    data_.put(plan_, put_, queue_.put_);
  }
  ++put_;
  ++queue_.put_;
  ++queue_.steps_;
}

std::int64_t ShmCollective::piece_bytes() const {
  const Signature& signature = collective_.signature;
  // In an all-to-all every rank has its own counts.
  const std::int64_t elements = signature.kind == CollectiveKind::kAllToAll
                                    ? plan_.piece
                                    : std::min(plan_.piece, signature.count);
  return elements * static_cast<std::int64_t>(size_of(signature.dtype));
}

void ShmCollective::move_pieces() {
  const std::uint32_t pieces = plan_.pieces;
  while (put_ < pieces && may_put()) {
    put_piece();
    my_call().put.store(put_, std::memory_order_release);
  }
  // The flags of a slot are meaningless before the call is published.
  if (!checked_) return;
  const bool sliced = plan_.method == ShmPlan::Method::kSliced;
  while (sliced && reduced_ < put_ && all_past(&CallSlot::put, reduced_, next_put_)) {
    {
      const PeerCopy::TimedWork work(group_.peer_copy(), turn_ + reduced_, piece_bytes());
      data_.reduce(plan_, reduced_, first_ + reduced_);
    }
    my_call().reduced.store(++reduced_, std::memory_order_release);
    next_put_ = 0;
    ++queue_.steps_;
  }
  const std::uint32_t ready = sliced ? reduced_ : put_;
  const auto flag = sliced ? &CallSlot::reduced : &CallSlot::put;
  int& next = sliced ? next_reduced_ : next_put_;
  while (taken_ < ready && queue_.taken_ == first_ + taken_ && all_past(flag, taken_, next)) {
    {
      const PeerCopy::TimedWork work(group_.peer_copy(), turn_ + taken_, piece_bytes());
      data_.take(plan_, taken_, queue_.taken_);
    }
    ++taken_;
    next = 0;
    group_.mine().taken.store(++queue_.taken_, std::memory_order_release);
    ++queue_.steps_;
  }
  done_ = taken_ == pieces && all_agree_on_counts();
}

// The counts between two ranks are only known to those two. The receiver checks them when it takes
// the first piece. Until every rank has done so, the collective may still fail.
bool ShmCollective::all_agree_on_counts() {
  if (collective_.signature.kind != CollectiveKind::kAllToAll) return true;
  my_call().reduced.store(1, std::memory_order_release);
  return all_past(&CallSlot::reduced, 0, next_reduced_);
}

bool ShmCollective::all_past(std::atomic<std::uint32_t> CallSlot::*flag, std::uint32_t piece,
                             int& next) const {
  while (next < group_.size() &&
         (group_.call(next, collective_.sequence).*flag).load(std::memory_order_acquire) > piece)
    ++next;
  return next == group_.size();
}

std::uint64_t ShmCollective::steps() const { return queue_.steps_; }

std::vector<int> ShmCollective::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < group_.size(); ++rank)
    if (rank != group_.rank() && !group_.has_called(rank, collective_.sequence))
      ranks.push_back(rank);
  return ranks;
}

bool ShmCollective::waits_for(int peer) const {
  return group_.state(peer).completed.load(std::memory_order_acquire) <= collective_.sequence;
}

std::string ShmCollective::description() const {
  return fmt::format("collective {} ({})", collective_.sequence,
                     describe(collective_.signature, collective_.label, group_.names()));
}

void ShmCollective::throw_mismatch() const {
  std::vector<RankCall> calls;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (!group_.has_called(rank, collective_.sequence)) continue;
    const CallLabel& label = group_.state(rank).labels[collective_.sequence % kSlots];
    calls.push_back(
        {rank,
         group_.call(rank, collective_.sequence).signature,
         {std::string(label.name, strnlen(label.name, sizeof(label.name))), label.step}});
  }
  throw InvalidArgumentError(describe_mismatch(collective_.sequence, calls, group_.names()));
}

}  // namespace tandem::shm
