#include "comm/local/local_group.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "comm/stall.h"
#include "core/core_yield.h"
#include "core/joined.h"
#include "core/status.h"
#include "device/native_gpu.h"
#include "device/stream_span.h"

namespace tandem {
namespace {

// The mismatch between this rank's call and the collective; empty if there is none.
std::string find_mismatch(const LocalCollective& collective, int rank, const Signature& signature,
                          const Label& label) {
  const bool first_sends = collective.kind() == CollectiveKind::kSend;
  if (first_sends || collective.kind() == CollectiveKind::kRecv) {
    const Signature& sent = first_sends ? collective.signature : signature;
    const Signature& expected = first_sends ? signature : collective.signature;
    if (sent.count == expected.count && sent.dtype == expected.dtype) return {};
    return fmt::format("[recv] replica {} sent {} {}, replica {} expected {} {}", expected.root,
                       sent.count, name_of(sent.dtype), sent.root, expected.count,
                       name_of(expected.dtype));
  }
  if (matches(collective.signature, signature)) return {};
  return fmt::format(
      "[{}] replicas diverged at collective {}: replica {} called {}, replica {} called {}; every "
      "replica must call the same ones in the same order",
      name_of(collective.kind()), collective.number, collective.first_rank,
      describe(collective.signature, collective.label), rank, describe(signature, label));
}

// Whether each device can read and write the memory of all of them.
bool reach_each_other(const std::vector<DeviceImpl*>& devices) {
  for (DeviceImpl* device : devices)
    for (DeviceImpl* peer : devices) {
      if (device->backend() != peer->backend()) return false;
      if (NativeGpu* gpu = as_native(*device); gpu && !gpu->reaches(*as_native(*peer)))
        return false;
    }
  return true;
}

// Splits each part into `packs` equal ones; the last takes the remainder.
std::vector<Buffer> cut(const std::vector<Buffer>& parts, int packs) {
  if (packs < 2) return parts;
  std::vector<Buffer> result;
  for (const Buffer& part : parts) {
    const std::int64_t each = part.count / packs;
    for (int i = 0; i < packs; ++i) {
      Buffer& pack = result.emplace_back(part);
      pack.data = static_cast<std::byte*>(part.data) +
                  static_cast<std::size_t>(i * each) * size_of(part.dtype);
      pack.count = i + 1 < packs ? each : part.count - i * each;
    }
  }
  return result;
}

profile::Event profile_of(const LocalCollective& collective, int rank) {
  return collective.event(rank, std::string(name_of(collective.kind())),
                          profile::Lane::kCollectives);
}

// After all have joined: the mismatch of sent and expected counts; empty if there is none.
std::string find_wrong_counts(const LocalCollective& collective) {
  if (collective.kind() != CollectiveKind::kAllToAll) return {};
  for (int to : collective.members)
    for (int from : collective.members) {
      const Buffer& sent =
          collective.in[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
      const Buffer& expected =
          collective.out[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)];
      if (sent.count != expected.count)
        return fmt::format(
            "[all_to_all] replicas diverged at collective {}: replica {} sent {} {} to replica {}, "
            "which expected {}",
            collective.number, from, sent.count, name_of(sent.dtype), to, expected.count);
    }
  return {};
}

}  // namespace

LocalGroup::LocalGroup(std::vector<DeviceImpl*> devices, LocalGroupOptions options)
    : options_(options) {
  devices_ = std::move(devices);
  if (uses_nccl() && !why_no_nccl(devices_).empty()) options_.plan.kind = LocalPlan::Kind::kSliced;
  world_.plan = options_.plan;
  world_.direct = reach_each_other(devices_);
  begin_step(std::vector<bool>(devices_.size(), true));
}

LocalGroup::~LocalGroup() = default;

void LocalGroup::begin_step(const std::vector<bool>& active) {
  {
    std::lock_guard lock(mutex_);
    active_.clear();
    for (std::size_t rank = 0; rank < active.size(); ++rank)
      if (active[rank]) active_.push_back(static_cast<int>(rank));
    ++step_;
    open_.clear();
    ended_count_.store(0, std::memory_order_release);
    ended_.assign(devices_.size(), false);
    abort_reason_.clear();
    abort_rank_ = -1;
    aborted_.store(false, std::memory_order_release);
  }
  for_children([&](LocalGroup& group, const std::vector<int>& ranks) {
    std::vector<bool> part;
    part.reserve(ranks.size());
    for (int rank : ranks) part.push_back(active[static_cast<std::size_t>(rank)]);
    group.begin_step(part);
  });
}

void LocalGroup::abort(int rank, const std::string& reason) {
  abort(rank, GroupFailure::kNone, reason);
}

void LocalGroup::abort(int rank, GroupFailure failure, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (abort_rank_ < 0) {
      abort_rank_ = rank;
      abort_reason_ = text;
      abort_failure_ = failure;
    }
    aborted_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  for_children(
      [&](LocalGroup& group, const std::vector<int>&) { group.abort(rank, failure, text); });
}

void LocalGroup::end_step(int rank) {
  {
    std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
    ended_count_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_all();
  for_children([&](LocalGroup& group, const std::vector<int>& ranks) {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (found != ranks.end()) group.end_step(static_cast<int>(found - ranks.begin()));
  });
}

template <class Body>
void LocalGroup::for_children(const Body& body) {
  std::vector<std::pair<std::shared_ptr<LocalGroup>, std::vector<int>>> groups;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const Child& child) { return child.group.expired(); });
    for (const Child& child : children_)
      if (auto group = child.group.lock()) groups.emplace_back(std::move(group), child.ranks);
  }
  for (const auto& [group, ranks] : groups) body(*group, ranks);
}

std::shared_ptr<LocalGroup> LocalGroup::split(const std::vector<int>& ranks, int again) {
  std::lock_guard lock(mutex_);
  const auto key = std::make_pair(ranks, again);
  Split& split = splits_[key];
  if (!split.group) {
    std::vector<DeviceImpl*> devices;
    LocalGroupOptions options = options_;
    options.plan.root = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      devices.push_back(devices_[static_cast<std::size_t>(ranks[i])]);
      if (ranks[i] == options_.plan.root) options.plan.root = static_cast<int>(i);
    }
    split.group = std::make_shared<LocalGroup>(std::move(devices), options);
    split.expected = ranks.size();
    children_.push_back({ranks, split.group});
  }
  auto group = split.group;
  if (--split.expected == 0) splits_.erase(key);
  return group;
}

void LocalGroup::check_ended_ranks(const LocalCollective& collective) {
  std::lock_guard lock(mutex_);
  for (int rank : collective.members)
    if (ended_[static_cast<std::size_t>(rank)] && !collective.here[static_cast<std::size_t>(rank)])
      fail<InvalidArgumentError>(
          "[{}] replica {} ended its step without this collective, which replica {} called; every "
          "replica must call the same ones in the same order",
          name_of(collective.kind()), rank, collective.first_rank);
}

std::vector<int> LocalGroup::missing(const LocalCollective& collective) {
  std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (int rank : collective.members)
    if (!collective.here[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  return ranks;
}

void LocalGroup::throw_abort() {
  std::lock_guard lock(mutex_);
  if (abort_failure_ != GroupFailure::kNone) throw_failure(abort_failure_, abort_reason_);
  fail<AbortedError>("replica {} failed, and this one stopped with it: {}", abort_rank_,
                     abort_reason_);
}

void LocalGroup::wake() {
  if (sleepers_.load() == 0) return;
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

std::string LocalGroup::describe_wait(const LocalCollective& collective,
                                      std::chrono::milliseconds waited) {
  const std::vector<int> ranks = missing(collective);
  const std::string call = fmt::format("collective {} ({})", collective.number,
                                       describe(collective.signature, collective.label));
  if (ranks.empty())
    return fmt::format("[{}] {} did not end within {} ms, though every replica has reached it",
                       name_of(collective.kind()), call, waited.count());
  return fmt::format("[{}] replica{} {} did not reach {} within {} ms", name_of(collective.kind()),
                     ranks.size() == 1 ? "" : "s", joined(ranks, ", "), call, waited.count());
}

// Spins for a while, because peers in step arrive within microseconds; then yields; then sleeps.
void LocalGroup::wait_until(const LocalCollective& collective, int rank,
                            const std::function<bool()>& ready) {
  const auto step = [&] {
    if (ready()) return true;
    if (aborted()) throw_abort();
    return false;
  };
  for (int i = 0; i < 200; ++i) {
    if (step()) return;
    pause_core();
  }
  for (int i = 0; i < 200; ++i) {
    if (step()) return;
    std::this_thread::yield();
  }
  const auto deadline = std::chrono::steady_clock::now() + options_.time_limit;
  LongWait wait;
  while (!step()) {
    sleepers_.fetch_add(1);
    {
      std::unique_lock lock(mutex_);
      // Naps are short, because a wake-up between the test above and the wait below is missed.
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    sleepers_.fetch_sub(1);
    if (std::chrono::steady_clock::now() > deadline)
      throw DeadlineExceededError(describe_wait(collective, options_.time_limit));
    if (rank == collective.first_rank)  // warns for all
      wait.look([&](std::chrono::milliseconds time) { return describe_wait(collective, time); });
  }
}

std::shared_ptr<LocalCollective> LocalGroup::join(int rank, Call call) {
  if (aborted()) throw_abort();
  const auto me = static_cast<std::size_t>(rank);
  const CollectiveKind kind = call.signature.kind;
  const bool message = call.key.from >= 0;
  StreamEvent ready = kind == CollectiveKind::kExchange || kind == CollectiveKind::kBarrier
                          ? StreamEvent()
                          : devices_[me]->stream().record();
  std::shared_ptr<LocalCollective> collective;
  {
    std::lock_guard lock(mutex_);
    if ((kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast) &&
        std::find(active_.begin(), active_.end(), call.signature.root) == active_.end())
      fail<InvalidArgumentError>("[{}] the root, replica {}, is inactive in this step",
                                 name_of(kind), call.signature.root);
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [&](const auto& item) { return item.first == call.key; });
    if (found != open_.end()) {
      collective = found->second;
    } else {
      collective = std::make_shared<LocalCollective>(devices_.size());
      open_.emplace_back(call.key, collective);
      collective->number = call.key.number;
      collective->signature = call.signature;
      collective->label = call.label;
      collective->first_rank = rank;
      collective->members = message ? std::vector<int>{call.key.from, call.key.to} : active_;
    }
    collective->in[me] = std::move(call.in);
    collective->out[me] = std::move(call.out);
    collective->ready[me] = std::move(ready);
    collective->here[me] = true;
    if (collective->mismatch.empty())
      collective->mismatch = find_mismatch(*collective, rank, call.signature, call.label);
    const bool last = collective->joined.load(std::memory_order_relaxed) + 1 ==
                      static_cast<int>(collective->members.size());
    if (last && collective->mismatch.empty()) collective->mismatch = find_wrong_counts(*collective);
    collective->joined.fetch_add(1, std::memory_order_acq_rel);
    if (last) std::erase_if(open_, [&](const auto& item) { return item.second == collective; });
  }
  wake();
  return collective;
}

bool LocalGroup::by_nccl(const LocalCollective& collective) const {
  return uses_nccl() && !collective.on_host() && collective.members.size() == devices_.size() &&
         collective.kind() != CollectiveKind::kSend && collective.kind() != CollectiveKind::kRecv &&
         collective.signature.op != ReduceOp::kTreeSum;  // NCCL has its own order of sums
}

void LocalGroup::perform(LocalCollective& collective, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  if (collective.on_host()) {
    perform_part(world_, collective, rank);
  } else if (by_nccl(collective)) {
    if (rank == collective.members.front()) perform_by_nccl(collective);
  } else {
    DeviceImpl& device = *devices_[me];
    {
      const StreamSpan span(device, [&] { return profile_of(collective, rank); });
      for (int peer : collective.members)
        device.stream().wait(collective.ready[static_cast<std::size_t>(peer)]);
      perform_part(world_, collective, rank);
    }
    collective.performed[me] = device.stream().record();
  }
  collective.finished.fetch_add(1, std::memory_order_acq_rel);
  wake();
}

// One thread enqueues for all ranks. Otherwise some ranks might have launched their part while
// another rank's thread failed before it did.
void LocalGroup::perform_by_nccl(LocalCollective& collective) {
  const std::lock_guard one_after_the_other(NativeGpu::multi_gpu_launch_mutex());
  if (nccl_ && nccl_->failed()) std::exchange(nccl_, nullptr)->check_unreported();
  if (!nccl_) nccl_ = nccl_clique(devices_, options_.time_limit);
  std::vector<std::vector<Buffer>> packs(devices_.size());
  std::vector<NcclClique::RankBuffers> shares;
  std::deque<StreamSpan> spans;
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    Stream& stream = as_native(*devices_[rank])->communication_stream();
    stream.wait(collective.ready[rank]);
    spans.emplace_back(*devices_[rank], stream,
                       [&] { return profile_of(collective, static_cast<int>(rank)); });
    packs[rank] = collective.kind() == CollectiveKind::kAllReduce
                      ? cut(collective.in[rank], options_.plan.num_packs)
                      : collective.in[rank];
    shares.push_back(
        {.in = packs[rank], .out = collective.out[rank], .ready = collective.ready[rank]});
  }
  nccl_->start(collective.signature, collective.label, shares);
  spans.clear();
  for (std::size_t rank = 0; rank < devices_.size(); ++rank)
    collective.performed[rank] = as_native(*devices_[rank])->communication_stream().record();
}

void LocalGroup::finish(LocalCollective& collective, int rank) {
  if (collective.on_host()) return;
  Stream& stream = devices_[static_cast<std::size_t>(rank)]->stream();
  // NCCL's kernel on this GPU ends when this rank's part is complete.
  if (by_nccl(collective)) return stream.wait(collective.performed[static_cast<std::size_t>(rank)]);
  for (int peer : collective.members)
    stream.wait(collective.performed[static_cast<std::size_t>(peer)]);
}

}  // namespace tandem
