#include "comm/process/process_communicator.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <vector>

#include "comm/arguments.h"
#include "comm/device_memory.h"
#include "core/profile.h"
#include "core/status.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

class ProcessWork;

// What the works of a communicator share with it.
struct Group {
  Group(std::unique_ptr<Backend> moves_bytes, Device& of, ProcessGroupOptions with)
      : backend(std::move(moves_bytes)), device(of), options(std::move(with)) {}

  void submit(const std::shared_ptr<ProcessWork>& work);
  // Starts what can be started and advances what is under way, as far as `last` (null: all).
  void advance(const ProcessWork* last);
  // Advances until `work` is done.
  void wait(const ProcessWork& work);
  // Ends the group with the exception that is being handled, and throws it again.
  [[noreturn]] void fail_with_current();
  [[noreturn]] void throw_deadline(const ProcessWork& work);

  std::unique_ptr<Backend> backend;
  Device& device;
  ProcessGroupOptions options;
  std::uint64_t next_sequence = 0;
  Label label;
  std::deque<std::shared_ptr<ProcessWork>> open;  // not done, in the order of the calls
  std::exception_ptr failure;
  std::map<std::vector<int>, int> splits;  // how often each list of ranks was asked for
};

bool works_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kBarrier;
}

class ProcessWork final : public Work {
 public:
  ProcessWork(std::shared_ptr<Group> group, CollectiveKind kind, std::span<const Buffer> in,
              std::span<const Buffer> out, const Signature& signature)
      : group_(std::move(group)) {
    const bool in_place = works_in_place(kind);
    buffers_.assign(in.begin(), in.end());
    if (!in_place) buffers_.insert(buffers_.end(), out.begin(), out.end());
    collective_.signature = signature;
    if (kind != CollectiveKind::kSend && kind != CollectiveKind::kRecv)
      collective_.sequence = group_->next_sequence++;
    collective_.label = group_->label;
    if (profile::on()) [[unlikely]]
      begin_ = profile::now();
    if (kind != CollectiveKind::kExchange && !group_->device.host_accessible() &&
        !group_->backend->takes_device_memory())
      stage(in.size(), in_place);
    const std::vector<Buffer>& where = staging_ ? staged_ : buffers_;
    const std::span<const Buffer> all(where);
    collective_.in = all.first(in.size());
    collective_.out = in_place ? all : all.subspan(in.size());
  }

  const Collective& collective() const { return collective_; }
  const Operation* operation() const { return operation_.get(); }
  bool done() const { return done_; }

  // Whether the backend has it; false while the device has not computed what it takes.
  bool start() {
    if (operation_) return true;
    if (!ready_.done()) return false;
    operation_ = group_->backend->start(collective_);
    return true;
  }

  bool advance() {
    if (done_) return true;
    if (!operation_->advance()) return false;
    finish();
    return true;
  }

  void wait() override {
    if (done_) return;
    const profile::Span span([&] {
      return profile::Event{.name = "wait for " + std::string(name_of(collective_.signature.kind)),
                            .replica = group_->backend->rank(),
                            .bytes = bytes()};
    });
    group_->wait(*this);
  }

  bool test() override {
    if (!done_) group_->advance(this);
    return done_;
  }

 private:
  // Host memory for buffers that only the device reaches, with what they hold once it has got
  // there.
  void stage(std::size_t inputs, bool in_place) {
    std::size_t bytes = 0;
    for (const Buffer& buffer : buffers_) bytes += buffer.bytes();
    if (bytes == 0) return;
    staging_ = group_->backend->allocate(bytes);
    if (!staging_) staging_ = std::make_shared_for_overwrite<std::byte[]>(bytes);
    auto* at = static_cast<std::byte*>(staging_.get());
    staged_ = buffers_;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      staged_[i].data = at;
      at += buffers_[i].bytes();
      if (i < inputs && buffers_[i].count > 0)
        device_to_host(staged_[i].data, group_->device, buffers_[i].data, buffers_[i].bytes());
    }
    first_out_ = in_place ? 0 : inputs;
    ready_ = group_->device.stream().record();
  }

  bool writes_here() const {
    const Signature& signature = collective_.signature;
    const bool root = signature.root == group_->backend->rank();
    switch (signature.kind) {
      case CollectiveKind::kReduce: return root;
      case CollectiveKind::kBroadcast: return !root;
      case CollectiveKind::kSend: return false;
      default: return true;
    }
  }

  void finish() {
    if (staging_ && writes_here())
      for (std::size_t i = first_out_; i < buffers_.size(); ++i)
        if (buffers_[i].count > 0)
          host_to_device(group_->device, buffers_[i].data, staged_[i].data, buffers_[i].bytes());
    staging_.reset();
    done_ = true;
    if (begin_ > 0 && profile::on()) [[unlikely]]
      profile::record({.name = std::string(name_of(collective_.signature.kind)),
                       .lane = profile::Lane::kCollectives,
                       .device = &group_->device.full_name(),
                       .replica = group_->backend->rank(),
                       .begin = begin_,
                       .end = profile::now(),
                       .bytes = bytes()});
  }

  std::int64_t bytes() const {
    std::size_t sum = 0;
    for (const Buffer& buffer : collective_.in) sum += buffer.bytes();
    return static_cast<std::int64_t>(sum);
  }

  std::shared_ptr<Group> group_;
  std::vector<Buffer> buffers_;  // inputs, then outputs; one list for what works in place
  Collective collective_;
  std::unique_ptr<Operation> operation_;  // null: not started
  bool done_ = false;
  std::int64_t begin_ = 0;
  Event ready_;
  std::shared_ptr<void> staging_;  // null: the backend reaches the buffers
  std::vector<Buffer> staged_;
  std::size_t first_out_ = 0;
};

void Group::submit(const std::shared_ptr<ProcessWork>& work) {
  open.push_back(work);
  advance(nullptr);
}

void Group::advance(const ProcessWork* last) {
  if (failure) std::rethrow_exception(failure);
  try {
    for (std::size_t i = 0; i < open.size();) {
      const std::shared_ptr<ProcessWork>& work = open[i];
      const bool is_last = work.get() == last;
      if (!work->start()) break;  // those behind it must not overtake it
      if (work->advance())
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
      if (is_last) break;
    }
    // What the failed rank has done its share of may still complete.
    if ((last ? !last->done() : !open.empty()) && options.membership &&
        options.membership->failed())
      options.membership->throw_failure();
  } catch (...) {
    fail_with_current();
  }
}

void Group::fail_with_current() {
  failure = std::current_exception();
  try {
    throw;
  } catch (const InvalidArgumentError& error) {
    backend->fail_group(GroupFailure::kInvalidArgument, error.what());
  } catch (const DeadlineExceededError& error) {
    backend->fail_group(GroupFailure::kDeadlineExceeded, error.what());
  } catch (const std::exception& error) {
    backend->fail_group(GroupFailure::kAborted, error.what());
  }
  std::rethrow_exception(failure);
}

void Group::throw_deadline(const ProcessWork& work) {
  const Collective& collective = work.collective();
  const std::string_view name = name_of(collective.signature.kind);
  const std::string call = describe(collective.signature, collective.label);
  const auto limit = options.time_limit.count();
  if (!work.operation())
    fail<DeadlineExceededError>("[{}] {} did not compute what collective {} ({}) takes in {} ms",
                                name, device.full_name(), collective.sequence, call, limit);
  const std::vector<int> missing = work.operation()->missing();
  if (collective.signature.kind == CollectiveKind::kSend ||
      collective.signature.kind == CollectiveKind::kRecv)
    fail<DeadlineExceededError>("[{}] rank {} waited {} ms for rank {}: {}", name, backend->rank(),
                                limit, collective.signature.root, call);
  if (missing.empty())
    fail<DeadlineExceededError>(
        "[{}] collective {} ({}) did not end within {} ms, though every rank has reached it", name,
        collective.sequence, call, limit);
  std::vector<int> waiting;
  for (int rank = 0; rank < backend->size(); ++rank)
    if (std::find(missing.begin(), missing.end(), rank) == missing.end()) waiting.push_back(rank);
  fail<DeadlineExceededError>(
      "[{}] {} did not reach collective {} ({}) within {} ms; {} {} waiting", name,
      list_ranks(missing), collective.sequence, call, limit, list_ranks(waiting),
      waiting.size() == 1 ? "is" : "are");
}

// Spins, for peers in step arrive within microseconds; then yields, so that a peer that shares the
// core gets on; then naps, longer and longer. Begins anew whenever the work has got on.
void Group::wait(const ProcessWork& work) {
  using std::chrono::microseconds;
  constexpr int kLook = 16;  // looks at the clock once in so many rounds, while it spins
  constexpr auto kYield = microseconds(2000), kFirstNap = microseconds(20);
  const auto spin = backend->crowded() ? microseconds(0) : microseconds(50);
  const auto check = std::min<microseconds>(microseconds(100'000), options.time_limit);
  const auto begin = Clock::now();
  auto patient_since = begin, checked = begin;
  auto nap = kFirstNap;
  std::uint64_t steps = 0;
  for (int round = 0;; ++round) {
    advance(&work);
    if (work.done()) return;
    if (round < kLook) {
      __builtin_ia32_pause();
      continue;
    }
    const auto now = Clock::now();
    if (work.operation() && work.operation()->steps() != steps) {
      steps = work.operation()->steps();
      patient_since = now;
      nap = kFirstNap;
    }
    if (now - checked >= check) {
      checked = now;
      try {
        if (work.operation()) backend->check_peers(*work.operation());
        if (now - begin >= options.time_limit) throw_deadline(work);
      } catch (...) {
        fail_with_current();
      }
    }
    const auto patience = now - patient_since;
    if (patience < spin) {
      round = 0;
    } else if (patience < kYield) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, microseconds(1000));
    }
  }
}

// A call whose parts have several dtypes: a collective for each run of one dtype.
class WorkList final : public Work {
 public:
  explicit WorkList(std::vector<std::shared_ptr<Work>> works) : works_(std::move(works)) {}
  void wait() override {
    for (const auto& work : works_) work->wait();
  }
  bool test() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->test(); });
  }

 private:
  std::vector<std::shared_ptr<Work>> works_;
};

class ProcessCommunicator final : public Communicator {
 public:
  explicit ProcessCommunicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  ~ProcessCommunicator() override {
    // Breaks the circle of group and works, should some not be done.
    if (!group_->failure && !group_->open.empty())
      group_->failure = std::make_exception_ptr(
          FailedPreconditionError("the communicator was destroyed before its collectives ended"));
    group_->open.clear();
  }

  int rank() const override { return group_->backend->rank(); }
  int size() const override { return group_->backend->size(); }
  Device& device() const override { return group_->device; }

  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp op) override {
    check_reducible("all_reduce", parts);
    return start_in_place(CollectiveKind::kAllReduce, parts, op, 0);
  }

  std::shared_ptr<Work> reduce(std::span<const Buffer> parts, ReduceOp op, int root) override {
    check_reducible("reduce", parts);
    check_root("reduce", root, size());
    return start_in_place(CollectiveKind::kReduce, parts, op, root);
  }

  std::shared_ptr<Work> broadcast(std::span<const Buffer> parts, int root) override {
    check_root("broadcast", root, size());
    return start_in_place(CollectiveKind::kBroadcast, parts, ReduceOp::kSum, root);
  }

  std::shared_ptr<Work> all_gather(const Buffer& mine, std::span<const Buffer> gathered) override {
    check_shares("all_gather", gathered, mine, rank(), size());
    return start(CollectiveKind::kAllGather, {&mine, 1}, gathered, gathered);
  }

  std::shared_ptr<Work> reduce_scatter(std::span<const Buffer> parts, const Buffer& mine,
                                       ReduceOp op) override {
    check_reducible("reduce_scatter", parts);
    check_shares("reduce_scatter", parts, mine, rank(), size());
    return start(CollectiveKind::kReduceScatter, parts, {&mine, 1}, parts, op);
  }

  std::shared_ptr<Work> all_to_all(std::span<const Buffer> sent,
                                   std::span<const Buffer> received) override {
    check_shares("all_to_all", received, size());
    check_shares("all_to_all", sent, received[static_cast<std::size_t>(rank())], rank(), size());
    return start(CollectiveKind::kAllToAll, sent, received, sent);
  }

  std::shared_ptr<Work> send(const Buffer& buffer, int peer) override {
    check_peer("send", peer, rank(), size());
    return start(CollectiveKind::kSend, {&buffer, 1}, {}, {&buffer, 1}, ReduceOp::kSum, peer);
  }

  std::shared_ptr<Work> recv(const Buffer& buffer, int peer) override {
    check_peer("recv", peer, rank(), size());
    return start(CollectiveKind::kRecv, {}, {&buffer, 1}, {&buffer, 1}, ReduceOp::kSum, peer);
  }

  std::shared_ptr<Work> barrier() override { return start(CollectiveKind::kBarrier, {}, {}, {}); }

  void exchange(const void* mine, std::size_t bytes, void* gathered) override {
    const auto count = static_cast<std::int64_t>(bytes);
    const Buffer own = {const_cast<void*>(mine), count, uint8};
    std::vector<Buffer> all;
    for (int rank = 0; rank < size(); ++rank)
      all.push_back({static_cast<std::byte*>(gathered) + static_cast<std::size_t>(rank) * bytes,
                     count, uint8});
    start(CollectiveKind::kExchange, {&own, 1}, all, all)->wait();
  }

  void progress() override { group_->advance(nullptr); }

  void label(std::string_view name, std::int64_t step) override {
    group_->label = {std::string(name), step};
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    if (group_->device.host_accessible())
      if (auto memory = group_->backend->allocate(bytes)) return memory;
    return allocate_on(group_->device, bytes, "allocate", "a communicator's buffer");
  }

  std::unique_ptr<Communicator> split(std::span<const int> ranks) override {
    check_split(ranks, size());
    if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) return nullptr;
    if (group_->failure) std::rethrow_exception(group_->failure);
    const int again = group_->splits[std::vector<int>(ranks.begin(), ranks.end())]++;
    const std::string name = fmt::format("{}#{}", fmt::join(ranks, ","), again);
    return make_process_communicator(group_->backend->split(ranks, name), group_->device,
                                     group_->options);
  }

 private:
  std::shared_ptr<Work> start_in_place(CollectiveKind kind, std::span<const Buffer> parts,
                                       ReduceOp op, int root) {
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t begin = 0, end; begin < parts.size(); begin = end) {
      end = begin + 1;
      while (end < parts.size() && parts[end].dtype == parts[begin].dtype) ++end;
      const auto run = parts.subspan(begin, end - begin);
      auto work = start(kind, run, run, run, op, root);
      if (run.size() == parts.size()) return work;
      works.push_back(std::move(work));
    }
    if (parts.empty()) return start(kind, parts, parts, parts, op, root);
    return std::make_shared<WorkList>(std::move(works));
  }

  std::shared_ptr<Work> start(CollectiveKind kind, std::span<const Buffer> in,
                              std::span<const Buffer> out, std::span<const Buffer> counts,
                              ReduceOp op = ReduceOp::kSum, int root = 0) {
    if (group_->failure) std::rethrow_exception(group_->failure);
    auto work = std::make_shared<ProcessWork>(group_, kind, in, out,
                                              make_signature(kind, counts, op, root));
    group_->submit(work);
    return work;
  }

  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Backend> backend,
                                                        Device& device,
                                                        ProcessGroupOptions options) {
  return std::make_unique<ProcessCommunicator>(
      std::make_shared<Group>(std::move(backend), device, std::move(options)));
}

}  // namespace tandem
