#include "comm/local/local_group.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "core/profile.h"
#include "core/status.h"
#include "device/memory_report.h"
#include "device/stream_span.h"

namespace tandem {
namespace {

enum Kind : int { kAllReduce, kBroadcast, kExchange };
constexpr const char* kKindNames[] = {"all_reduce", "broadcast", "exchange"};

// A run of elements of one part.
struct Range {
  std::size_t part;
  std::int64_t begin;
  std::int64_t end;
};

}  // namespace

// One collective and the ranks that have reached it.
struct LocalGroup::Collective {
  explicit Collective(std::size_t ranks)
      : parts(ranks), ready(ranks), performed(ranks), here(ranks) {}

  int kind = kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int first_rank = -1;                     // who called it first
  std::vector<std::vector<Buffer>> parts;  // by rank
  std::vector<Event> ready;                // the rank's buffers hold what it put there
  std::vector<Event> performed;            // the rank's share is done
  std::vector<bool> here;                  // by rank; under the group's mutex
  std::atomic<int> joined{0};
  std::atomic<int> finished{0};
  std::string mismatch;  // written before `joined` is complete

  // The elements [from, to) of all parts taken as one vector.
  std::vector<Range> ranges(int rank, std::int64_t from, std::int64_t to) const {
    std::vector<Range> found;
    std::int64_t at = 0;
    const auto& mine = parts[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::int64_t begin = std::max(from, at), end = std::min(to, at + mine[i].count);
      if (begin < end) found.push_back({i, begin - at, end - at});
      at += mine[i].count;
    }
    return found;
  }
  std::int64_t bytes(int rank) const {
    std::int64_t count = 0;
    for (const Buffer& part : parts[static_cast<std::size_t>(rank)])
      count += static_cast<std::int64_t>(part.bytes());
    return count;
  }
  // What a profile tells of this rank's side.
  profile::Event event(int rank, std::string name, profile::Lane lane) const {
    return {.name = std::move(name), .lane = lane, .replica = rank, .bytes = bytes(rank)};
  }
  std::int64_t total(int rank) const {
    std::int64_t count = 0;
    for (const Buffer& part : parts[static_cast<std::size_t>(rank)]) count += part.count;
    return count;
  }
};

class LocalWork final : public Work {
 public:
  LocalWork(std::shared_ptr<LocalGroup> group, std::shared_ptr<LocalGroup::Collective> collective,
            int rank)
      : group_(std::move(group)), collective_(std::move(collective)), rank_(rank) {}

  // Does this rank's share if all have joined and it is not done yet.
  bool advance() {
    if (performed_) return true;
    if (collective_->joined.load(std::memory_order_acquire) <
        static_cast<int>(group_->active_.size()))
      return false;
    if (!collective_->mismatch.empty()) throw InvalidArgumentError(collective_->mismatch);
    group_->perform(*collective_, rank_);
    performed_ = true;
    return true;
  }

  void wait() override {
    if (done_) return;
    const profile::Span span([&] {
      return collective_->event(rank_, std::string("wait for ") + kKindNames[collective_->kind],
                                profile::Lane::kHost);
    });
    group_->wait_until(kKindNames[collective_->kind], [this] {
      if (advance()) return true;
      if (group_->departures_.load(std::memory_order_acquire) > 0)
        group_->check_departures(*collective_);
      return false;
    });
    group_->finish(*collective_, rank_);
    done_ = true;
  }

 private:
  std::shared_ptr<LocalGroup> group_;
  std::shared_ptr<LocalGroup::Collective> collective_;
  int rank_;
  bool performed_ = false;
  bool done_ = false;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  Device& device() const override { return *group_->devices_[static_cast<std::size_t>(rank_)]; }

  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp op) override {
    return start(parts, kAllReduce, op, 0);
  }

  std::shared_ptr<Work> broadcast(std::span<const Buffer> parts, int root) override {
    return start(parts, kBroadcast, ReduceOp::kSum, root);
  }

  void exchange(const void* mine, std::size_t bytes, void* gathered) override {
    const Buffer parts[] = {{const_cast<void*>(mine), static_cast<std::int64_t>(bytes), uint8},
                            {gathered, static_cast<std::int64_t>(bytes) * size(), uint8}};
    start(parts, kExchange, ReduceOp::kSum, 0)->wait();
  }

  void progress() override {
    while (!open_.empty() && open_.front()->advance()) open_.pop_front();
  }

 private:
  std::shared_ptr<LocalWork> start(std::span<const Buffer> parts, int kind, ReduceOp op, int root) {
    if (step_ != group_->step_) {  // what an earlier step left behind
      step_ = group_->step_;
      sequence_ = 0;
      open_.clear();
    }
    auto collective = group_->join(rank_, sequence_++, parts, kind, op, root);
    auto work = std::make_shared<LocalWork>(group_, std::move(collective), rank_);
    open_.push_back(work);
    progress();
    return work;
  }

  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::uint64_t step_ = 0;
  std::uint64_t sequence_ = 0;                   // of the step's collectives
  std::deque<std::shared_ptr<LocalWork>> open_;  // in order, this rank's share not done yet
};

LocalGroup::LocalGroup(std::vector<Device*> devices, LocalGroupOptions options)
    : devices_(std::move(devices)), options_(options) {
  direct_ = std::all_of(devices_.begin(), devices_.end(), [&](const Device* device) {
    return device->backend() == devices_.front()->backend();
  });
  begin(std::vector<bool>(devices_.size(), true));
}

LocalGroup::~LocalGroup() = default;

std::unique_ptr<Communicator> LocalGroup::communicator(int rank) {
  return std::make_unique<LocalCommunicator>(shared_from_this(), rank);
}

void LocalGroup::begin(const std::vector<bool>& active) {
  std::lock_guard lock(mutex_);
  active_.clear();
  for (std::size_t rank = 0; rank < active.size(); ++rank)
    if (active[rank]) active_.push_back(static_cast<int>(rank));
  ++step_;
  open_.clear();
  departures_.store(0, std::memory_order_release);
  left_.assign(devices_.size(), false);
  abort_reason_.clear();
  abort_rank_ = -1;
  aborted_.store(false, std::memory_order_release);
}

void LocalGroup::abort(int rank, const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (abort_rank_ < 0) {
      abort_rank_ = rank;
      abort_reason_ = reason;
    }
    aborted_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void LocalGroup::leave(int rank) {
  {
    std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    departures_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_all();
}

void LocalGroup::check_departures(const Collective& collective) {
  std::lock_guard lock(mutex_);
  for (int rank : active_)
    if (left_[static_cast<std::size_t>(rank)] && !collective.here[static_cast<std::size_t>(rank)])
      fail<InvalidArgumentError>(
          "[{}] replica {} ended its step without this collective, which replica {} called; every "
          "replica must call "
          "the same ones in the same order",
          kKindNames[collective.kind], rank, collective.first_rank);
}

void LocalGroup::throw_abort() {
  std::lock_guard lock(mutex_);
  fail<AbortedError>("replica {} failed, and this one stopped with it: {}", abort_rank_,
                     abort_reason_);
}

void LocalGroup::wake() {
  if (sleepers_.load() == 0) return;
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

// Spins for a while (peers in step arrive within microseconds), then yields, then sleeps.
template <class Ready>
void LocalGroup::wait_until(const char* what, const Ready& ready) {
  const auto step = [&] {
    if (ready()) return true;
    if (aborted()) throw_abort();
    return false;
  };
  for (int i = 0; i < 200; ++i) {
    if (step()) return;
    __builtin_ia32_pause();
  }
  for (int i = 0; i < 200; ++i) {
    if (step()) return;
    std::this_thread::yield();
  }
  const auto deadline = std::chrono::steady_clock::now() + options_.time_limit;
  while (!step()) {
    sleepers_.fetch_add(1);
    {
      std::unique_lock lock(mutex_);
      // Short naps: a wake-up between the test above and the wait below costs one of them.
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    sleepers_.fetch_sub(1);
    if (std::chrono::steady_clock::now() > deadline)
      fail<DeadlineExceededError>("[{}] not every replica reached this collective within {} ms",
                                  what, options_.time_limit.count());
  }
}

std::shared_ptr<LocalGroup::Collective> LocalGroup::join(int rank, std::uint64_t sequence,
                                                         std::span<const Buffer> parts, int kind,
                                                         ReduceOp op, int root) {
  if (aborted()) throw_abort();
  const auto me = static_cast<std::size_t>(rank);
  Event ready = kind == kExchange ? Event() : devices_[me]->stream().record();
  std::shared_ptr<Collective> collective;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [&](const auto& item) { return item.first == sequence; });
    if (found != open_.end()) {
      collective = found->second;
    } else {
      collective = std::make_shared<Collective>(devices_.size());
      open_.emplace_back(sequence, collective);
      collective->kind = kind;
      collective->op = op;
      collective->root = root;
      collective->first_rank = rank;
    }
    collective->parts[me].assign(parts.begin(), parts.end());
    collective->ready[me] = std::move(ready);
    collective->here[me] = true;
    const auto& first = collective->parts[static_cast<std::size_t>(collective->first_rank)];
    const bool same_parts = std::equal(
        first.begin(), first.end(), parts.begin(), parts.end(),
        [](const Buffer& a, const Buffer& b) { return a.count == b.count && a.dtype == b.dtype; });
    if (collective->mismatch.empty() && (collective->kind != kind || collective->op != op ||
                                         collective->root != root || !same_parts))
      collective->mismatch = fmt::format(
          "replicas parted at collective {}: replica {} called {} of {} parts, replica {} called "
          "{} of {} parts with other "
          "sizes, types or operation",
          sequence, collective->first_rank, kKindNames[collective->kind], first.size(), rank,
          kKindNames[kind], parts.size());
    if (collective->joined.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<int>(active_.size()))
      std::erase_if(open_, [&](const auto& item) { return item.second == collective; });
  }
  wake();
  return collective;
}

namespace {

// Memory of a device for the time of a staged reduction.
class Staging {
 public:
  Staging(Device& device, std::size_t bytes) : device_(device) {
    const MemoryTagScope tag(MemoryTag::kWorkspace);
    memory_ = device.allocator().allocate(bytes);
    if (!memory_ && bytes > 0)
      throw_out_of_memory(device, {.what = "memory to bring the replicas' values together",
                                   .op = "all_reduce",
                                   .bytes = bytes});
  }
  ~Staging() { device_.allocator().deallocate(memory_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  void* get() const { return memory_; }

 private:
  Device& device_;
  void* memory_ = nullptr;
};

}  // namespace

void LocalGroup::perform(Collective& collective, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  Device& device = *devices_[me];
  const auto address = [&](int of, const Range& range) {
    const Buffer& part = collective.parts[static_cast<std::size_t>(of)][range.part];
    return static_cast<std::byte*>(part.data) +
           static_cast<std::size_t>(range.begin) * size_of(part.dtype);
  };
  const auto dtype_of_part = [&](const Range& range) {
    return collective.parts[me][range.part].dtype;
  };

  if (collective.kind == kExchange) {
    const std::size_t bytes = collective.parts[me][0].bytes();
    auto* gathered = static_cast<std::byte*>(collective.parts[me][1].data);
    for (int peer : active_)
      std::memcpy(gathered + static_cast<std::size_t>(peer) * bytes,
                  collective.parts[static_cast<std::size_t>(peer)][0].data, bytes);
    collective.finished.fetch_add(1, std::memory_order_acq_rel);
    wake();
    return;
  }

  std::optional<StreamSpan> span;
  span.emplace(device, [&] {
    return collective.event(rank, kKindNames[collective.kind], profile::Lane::kCollectives);
  });
  for (int peer : active_) device.stream().wait(collective.ready[static_cast<std::size_t>(peer)]);
  if (collective.kind == kBroadcast) {
    if (rank != collective.root)
      for (std::size_t i = 0; i < collective.parts[me].size(); ++i) {
        const Buffer& to = collective.parts[me][i];
        const Buffer& from = collective.parts[static_cast<std::size_t>(collective.root)][i];
        copy_between(device, to.data, *devices_[static_cast<std::size_t>(collective.root)],
                     from.data, to.bytes());
      }
  } else {
    // This rank's place among those that take part, and its shares of the elements.
    const auto ranks = static_cast<std::int64_t>(active_.size());
    const std::int64_t place = std::find(active_.begin(), active_.end(), rank) - active_.begin();
    const std::int64_t total = collective.total(rank);
    const LocalPlan& plan = options_.plan;
    std::vector<Range> mine;
    const auto add = [&](const std::vector<Range>& more) {
      mine.insert(mine.end(), more.begin(), more.end());
    };
    CombineOrder order = CombineOrder::kInOrder;
    if (!direct_ || plan.kind == LocalPlan::Kind::kToOneDevice) {
      const bool root_active =
          std::find(active_.begin(), active_.end(), plan.root) != active_.end();
      if (rank == (root_active ? plan.root : active_.front()))
        add(collective.ranges(rank, 0, total));
    } else if (plan.kind == LocalPlan::Kind::kSliced) {
      add(collective.ranges(rank, total * place / ranks, total * (place + 1) / ranks));
    } else {
      order = CombineOrder::kHalves;
      if (plan.num_packs == 0) {
        for (std::size_t i = 0; i < collective.parts[me].size(); ++i)
          if (static_cast<std::int64_t>(i) % ranks == place)
            mine.push_back({i, 0, collective.parts[me][i].count});
      } else {
        for (std::int64_t pack = place; pack < plan.num_packs; pack += ranks)
          add(collective.ranges(rank, total * pack / plan.num_packs,
                                total * (pack + 1) / plan.num_packs));
      }
    }

    for (const Range& range : mine) {
      const std::int64_t count = range.end - range.begin;
      const DType dtype = dtype_of_part(range);
      const ReduceOp op = collective.op;
      std::vector<void*> buffers;
      if (direct_) {
        for (int peer : active_) buffers.push_back(address(peer, range));
        device.stream().enqueue([buffers, count, dtype, op, order] {
          combine_everywhere(buffers, count, dtype, op, order);
        });
      } else {
        // Through this rank's own device: copied here, combined, copied back.
        const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
        Staging staging(device, bytes * active_.size());
        for (std::size_t i = 0; i < active_.size(); ++i) {
          buffers.push_back(static_cast<std::byte*>(staging.get()) + i * bytes);
          copy_between(device, buffers.back(), *devices_[static_cast<std::size_t>(active_[i])],
                       address(active_[i], range), bytes);
        }
        device.stream().enqueue([buffers, count, dtype, op, order] {
          combine_everywhere(buffers, count, dtype, op, order);
        });
        for (std::size_t i = 0; i < active_.size(); ++i)
          copy_between(*devices_[static_cast<std::size_t>(active_[i])], address(active_[i], range),
                       device, buffers[i], bytes);
      }
    }
  }
  span.reset();
  collective.performed[me] = device.stream().record();
  collective.finished.fetch_add(1, std::memory_order_acq_rel);
  wake();
}

void LocalGroup::finish(Collective& collective, int rank) {
  const int expected = static_cast<int>(active_.size());
  wait_until(kKindNames[collective.kind],
             [&] { return collective.finished.load(std::memory_order_acquire) >= expected; });
  if (collective.kind == kExchange) return;
  Stream& stream = devices_[static_cast<std::size_t>(rank)]->stream();
  for (int peer : active_) stream.wait(collective.performed[static_cast<std::size_t>(peer)]);
}

}  // namespace tandem
