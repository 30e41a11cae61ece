#include "comm/local/local_collective.h"

#include <algorithm>
#include <cstring>

#include "comm/device_arithmetic.h"
#include "comm/device_memory.h"
#include "device/copy.h"

namespace tandem {
namespace {

// A run of elements of one part.
struct PartSlice {
  std::size_t part;
  std::int64_t begin;
  std::int64_t end;
};

// Elements in the memory of a rank's device.
struct RankMemory {
  int rank;
  std::byte* data;
};

class RankExecution {
 public:
  RankExecution(const LocalWorld& world, const LocalCollective& collective, int rank)
      : world_(world),
        collective_(collective),
        rank_(rank),
        device_(device_of(rank)),
        computes_on_(world.plan.device && collective.kind() == CollectiveKind::kAllReduce
                         ? *world.plan.device
                         : device_),
        direct_(world.direct && &computes_on_ == &device_),
        in_(in_of(rank)),
        out_(collective.out[index(rank)]) {}

  void all_reduce() const {
    CombineOrder order = CombineOrder::kInOrder;
    for (const PartSlice& range : ranges_to_combine(order))
      combine_ranks(range, world_.active, order);
  }

  void reduce() const {
    if (!world_.direct) {
      const int root[] = {collective_.signature.root};
      if (rank_ == root[0])
        for (const PartSlice& range : ranges(0, total()))
          combine_ranks(range, root, CombineOrder::kInOrder);
      return;
    }
    const int root[] = {collective_.signature.root};
    for (const PartSlice& range : slice()) combine_ranks(range, root, CombineOrder::kInOrder);
  }

  void broadcast() const {
    const int root = collective_.signature.root;
    if (rank_ == root) return;
    for (std::size_t i = 0; i < in_.size(); ++i) copy(in_[i], root, in_of(root)[i]);
  }

  void all_gather() const {
    for (int peer : world_.active) copy(out_[index(peer)], peer, in_of(peer).front());
  }

  void reduce_scatter() const {
    const Buffer& result = out_.front();
    std::vector<RankMemory> inputs;
    for (int peer : world_.active)
      inputs.push_back({peer, static_cast<std::byte*>(in_of(peer)[index(rank_)].data)});
    const RankMemory output = {rank_, static_cast<std::byte*>(result.data)};
    combine_memory(inputs, {&output, 1}, result.count, result.dtype, CombineOrder::kInOrder);
  }

  void all_to_all() const {
    for (int peer : world_.active) copy(out_[index(peer)], peer, in_of(peer)[index(rank_)]);
  }

  void receive() const {
    const int peer =
        collective_.members[0] == rank_ ? collective_.members[1] : collective_.members[0];
    if (!out_.empty()) copy(out_.front(), peer, in_of(peer).front());
  }

  void exchange() const {
    for (int peer : world_.active)
      std::memcpy(out_[index(peer)].data, in_of(peer).front().data, out_[index(peer)].bytes());
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  DeviceImpl& device_of(int rank) const { return *world_.devices[index(rank)]; }
  const std::vector<Buffer>& in_of(int rank) const { return collective_.in[index(rank)]; }

  void copy(const Buffer& to, int from_rank, const Buffer& from) const {
    if (to.count > 0 && to.data != from.data)
      copy_between(device_, to.data, device_of(from_rank), from.data, to.bytes());
  }

  std::int64_t total() const {
    std::int64_t count = 0;
    for (const Buffer& part : in_) count += part.count;
    return count;
  }

  // The elements [from, to) of all parts taken as one vector.
  std::vector<PartSlice> ranges(std::int64_t from, std::int64_t to) const {
    std::vector<PartSlice> found;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const std::int64_t begin = std::max(from, at), end = std::min(to, at + in_[i].count);
      if (begin < end) found.push_back({i, begin - at, end - at});
      at += in_[i].count;
    }
    return found;
  }

  // The index of this rank among the active ranks.
  std::int64_t place() const {
    return std::find(world_.active.begin(), world_.active.end(), rank_) - world_.active.begin();
  }

  std::vector<PartSlice> slice() const {
    const auto ranks = static_cast<std::int64_t>(world_.active.size());
    return ranges(total() * place() / ranks, total() * (place() + 1) / ranks);
  }

  // The elements that this rank reduces.
  std::vector<PartSlice> ranges_to_combine(CombineOrder& order) const {
    const LocalPlan& plan = world_.plan;
    if (!direct_ || plan.kind == LocalPlan::Kind::kToOneDevice) {
      const bool root_active =
          std::find(world_.active.begin(), world_.active.end(), plan.root) != world_.active.end();
      if (rank_ != (root_active ? plan.root : world_.active.front())) return {};
      return ranges(0, total());
    }
    if (plan.kind != LocalPlan::Kind::kHierarchical) return slice();
    order = CombineOrder::kHalves;
    const auto ranks = static_cast<std::int64_t>(world_.active.size());
    std::vector<PartSlice> mine;
    if (plan.num_packs == 0) {
      for (std::size_t i = 0; i < in_.size(); ++i)
        if (static_cast<std::int64_t>(i) % ranks == place()) mine.push_back({i, 0, in_[i].count});
      return mine;
    }
    for (std::int64_t pack = place(); pack < plan.num_packs; pack += ranks) {
      const auto more =
          ranges(total() * pack / plan.num_packs, total() * (pack + 1) / plan.num_packs);
      mine.insert(mine.end(), more.begin(), more.end());
    }
    return mine;
  }

  // Reduces the elements of all ranks and writes the result to those of `targets`.
  void combine_ranks(const PartSlice& range, std::span<const int> targets,
                     CombineOrder order) const {
    const auto place_of = [&](int rank) {
      const Buffer& part = in_of(rank)[range.part];
      return RankMemory{rank, static_cast<std::byte*>(part.data) +
                                  static_cast<std::size_t>(range.begin) * size_of(part.dtype)};
    };
    std::vector<RankMemory> inputs, outputs;
    for (int peer : world_.active) inputs.push_back(place_of(peer));
    for (int peer : targets) outputs.push_back(place_of(peer));
    combine_memory(inputs, outputs, range.end - range.begin, in_[range.part].dtype, order);
  }

  void combine_memory(std::span<const RankMemory> inputs, std::span<const RankMemory> outputs,
                      std::int64_t count, DType dtype, CombineOrder order) const {
    if (count == 0) return;
    std::vector<const void*> from;
    std::vector<void*> to;
    const ReduceOp op = collective_.signature.op;
    if (direct_) {
      for (const RankMemory& input : inputs) from.push_back(input.data);
      for (const RankMemory& output : outputs) to.push_back(output.data);
      return combine_on(device_, from, to, count, dtype, op, order);
    }
    // Copies the inputs to one device, reduces them there, and copies the result to its
    // destinations.
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
    const Scoped tag(memory_tag, MemoryTag::kWorkspace);
    const auto staging = allocate_on(computes_on_, bytes * inputs.size(), "all_reduce",
                                     "memory to reduce the replicas' values");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto* staged = static_cast<std::byte*>(staging.get()) + i * bytes;
      copy_between(computes_on_, staged, device_of(inputs[i].rank), inputs[i].data, bytes);
      from.push_back(staged);
    }
    to.push_back(staging.get());
    combine_on(computes_on_, from, to, count, dtype, op, order);
    for (const RankMemory& output : outputs)
      copy_between(device_of(output.rank), output.data, computes_on_, staging.get(), bytes);
  }

  const LocalWorld& world_;
  const LocalCollective& collective_;
  int rank_;
  DeviceImpl& device_;
  DeviceImpl& computes_on_;  // this rank's device, or that of the plan
  bool direct_;              // computes_on_ can access the memory of all ranks
  const std::vector<Buffer>& in_;
  const std::vector<Buffer>& out_;
};

}  // namespace

profile::Event LocalCollective::event(int rank, std::string name, profile::Lane lane) const {
  std::int64_t bytes = 0;
  for (const Buffer& part : in[static_cast<std::size_t>(rank)])
    bytes += static_cast<std::int64_t>(part.bytes());
  return {.name = std::move(name), .lane = lane, .replica = rank, .bytes = bytes};
}

void perform_part(const LocalWorld& world, const LocalCollective& collective, int rank) {
  const RankExecution share(world, collective, rank);
  switch (collective.kind()) {
    case CollectiveKind::kAllReduce: return share.all_reduce();
    case CollectiveKind::kReduce: return share.reduce();
    case CollectiveKind::kBroadcast: return share.broadcast();
    case CollectiveKind::kAllGather: return share.all_gather();
    case CollectiveKind::kReduceScatter: return share.reduce_scatter();
    case CollectiveKind::kAllToAll: return share.all_to_all();
    case CollectiveKind::kExchange: return share.exchange();
    case CollectiveKind::kBarrier: return;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: return share.receive();
  }
}

}  // namespace tandem
