#include "comm/hierarchical/build_work.h"

#include <algorithm>
#include <cstring>

#include "comm/device_arithmetic.h"
#include "core/status.h"
#include "device/copy.h"

namespace tandem::hierarchical {
namespace {

using Buffers = std::vector<Buffer>;

std::size_t bytes_of(std::span<const Buffer> buffers) {
  std::size_t bytes = 0;
  for (const Buffer& buffer : buffers) bytes += buffer.bytes();
  return bytes;
}

// Splits parts, taken as one vector, into pieces of about `bytes` bytes. At least one piece, which
// may be empty.
std::vector<Buffers> cut(std::span<const Buffer> parts, std::size_t bytes) {
  std::vector<Buffers> pieces(1);
  if (bytes_of(parts) < bytes + bytes / 2) {
    pieces.front().assign(parts.begin(), parts.end());
    return pieces;
  }
  std::size_t room = bytes;
  for (Buffer part : parts) {
    const std::size_t element = size_of(part.dtype);
    while (part.count > 0) {
      if (room < element) {
        pieces.emplace_back();
        room = bytes;
      }
      const auto count = std::min<std::int64_t>(
          part.count, static_cast<std::int64_t>(std::max<std::size_t>(room / element, 1)));
      pieces.back().push_back({part.data, count, part.dtype});
      const std::size_t taken = static_cast<std::size_t>(count) * element;
      part.data = static_cast<std::byte*>(part.data) + taken;
      part.count -= count;
      room -= std::min(room, taken);
    }
  }
  return pieces;
}

class HierarchicalWorkBuilder {
 public:
  HierarchicalWorkBuilder(const std::shared_ptr<Pipeline>& pipeline, const CheckedCall& call)
      : pipeline_(*pipeline),
        layout_(pipeline_.layout),
        call_(call),
        sum_(call.op == ReduceOp::kMean ? ReduceOp::kSum : call.op),
        message_(call.kind == CollectiveKind::kSend || call.kind == CollectiveKind::kRecv),
        work_(std::make_shared<HierarchicalWork>(pipeline, message_ ? 0 : pipeline_.next_sequence++,
                                                 call.signature(), pipeline_.label)) {}

  std::shared_ptr<HierarchicalWork> make() {
    if (!message_) agree();
    switch (call_.kind) {
      case CollectiveKind::kAllReduce: all_reduce(); break;
      case CollectiveKind::kReduce: reduce(); break;
      case CollectiveKind::kBroadcast: broadcast(); break;
      case CollectiveKind::kAllGather: all_gather(); break;
      case CollectiveKind::kReduceScatter: reduce_scatter(); break;
      case CollectiveKind::kAllToAll: all_to_all(); break;
      case CollectiveKind::kBarrier: barrier(); break;
      case CollectiveKind::kExchange: exchange(); break;
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv: message(); break;
    }
    return work_;
  }

 private:
  // The ranks exchange announcements, first inside the groups, then between the leaders. After a
  // mismatch, errors then name the collective that was called and not one of its steps.
  void agree() {
    HierarchicalWork& work = *work_;
    work.mine = announce(
        {.sequence = work.sequence(), .signature = work.signature(), .label = work.label()});
    inside_ = work_->add(
        HierarchyLink::kToLeader, exchange_of(*pipeline_.inner, work.inside), {},
        [this_ = &pipeline_, &work] {
          check(work, work.inside, this_->names, [&](int place) {
            return std::vector<int>{this_->layout.ranks_of(this_->layout.group)[index(place)]};
          });
        });
    agreed_ = inside_;
    if (!layout_.leads()) return;
    agreed_ =
        work_->add(HierarchyLink::kBetweenLeaders, exchange_of(*pipeline_.outer, work.between),
                   {inside_}, [this_ = &pipeline_, &work] {
                     check(work, work.between, this_->names,
                           [&](int group) { return this_->layout.ranks_of(group); });
                   });
  }

  std::function<std::shared_ptr<CollectiveWork>()> exchange_of(Communicator& among,
                                                               std::vector<Announcement>& all) {
    return [&among, &all, work = work_.get()] {
      all.resize(index(among.size()));
      return among.start_exchange(&work->mine, sizeof(work->mine), all.data());
    };
  }

  // `ranks_at(i)`: the ranks that announcement i stands for.
  template <class RanksAt>
  static void check(const HierarchicalWork& work, const std::vector<Announcement>& all,
                    const RankNames& names, const RanksAt& ranks_at) {
    if (std::all_of(all.begin(), all.end(), [&](const Announcement& one) {
          return one.sequence == work.sequence() && matches(one.signature, work.signature());
        }))
      return;
    std::vector<RankCall> calls;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (int rank : ranks_at(static_cast<int>(i)))
        calls.push_back({rank, all[i].signature, {all[i].name, all[i].step}});
    throw InvalidArgumentError(std::string(kErrorPrefix) +
                               describe_mismatch(work.sequence(), calls, names));
  }

  void all_reduce() {
    for (const Buffers& piece : cut(call_.in, pipeline_.options.piece_bytes)) {
      const PipelineStep* in = reduce_inside(piece);
      if (layout_.leads())
        in = add(
            HierarchyLink::kBetweenLeaders, {in, agreed_},
            [this_ = &pipeline_, piece, op = sum_] { return this_->outer->all_reduce(piece, op); },
            finish_mean(piece));
      hand_out(piece, in);
    }
  }

  void reduce() {
    const int home = layout_.group_of(call_.root), place = layout_.place_of(call_.root);
    const bool at_home = home == layout_.group;
    const Buffers parts(call_.in.begin(), call_.in.end());
    // A leader keeps its own elements unless it is the root.
    const Buffers sums = layout_.leads() && !(at_home && place == 0) ? copy_of(parts) : parts;
    const PipelineStep* in = reduce_inside(sums);
    if (layout_.leads())
      in = add(
          HierarchyLink::kBetweenLeaders, {in, agreed_},
          [this_ = &pipeline_, sums, op = sum_, home] {
            return this_->outer->reduce(sums, op, home);
          },
          at_home ? finish_mean(sums) : nullptr);
    if (at_home && place > 0)
      for (std::size_t i = 0; i < parts.size(); ++i) {
        // The leader sends the root its share.
        Buffers sent(index(layout_.group_size()), {nullptr, 0, parts[i].dtype}), received = sent;
        if (layout_.leads()) sent[index(place)] = sums[i];
        if (layout_.place == place) received.front() = parts[i];
        distribute(std::move(sent), std::move(received), in);
      }
  }

  void broadcast() {
    const int home = layout_.group_of(call_.root), place = layout_.place_of(call_.root);
    const bool at_home = home == layout_.group;
    for (const Buffers& piece : cut(call_.in, pipeline_.options.piece_bytes)) {
      const PipelineStep* in = inside_;
      if (at_home)
        in = add(HierarchyLink::kToLeader, {inside_}, [this_ = &pipeline_, piece, place] {
          return this_->inner->broadcast(piece, place);
        });
      if (layout_.leads())
        in = add(HierarchyLink::kBetweenLeaders, {in, agreed_}, [this_ = &pipeline_, piece, home] {
          return this_->outer->broadcast(piece, home);
        });
      if (!at_home) hand_out(piece, in);
    }
  }

  void all_gather() {
    const Buffer mine = call_.in.front();
    const std::vector<Buffers> gathered = by_group(call_.out);
    const PipelineStep* own =
        add(HierarchyLink::kToLeader, {inside_},
            [this_ = &pipeline_, mine, group = gathered[index(layout_.group)]] {
              return this_->inner->all_gather(mine, group);
            });
    for (int group = 0; group < layout_.groups(); ++group) {
      const Buffers& share = gathered[index(group)];
      const PipelineStep* in = own;
      if (layout_.leads())
        in = add(
            HierarchyLink::kBetweenLeaders, {own, agreed_},
            [this_ = &pipeline_, share, group] { return this_->outer->broadcast(share, group); });
      if (group != layout_.group) hand_out(share, in);
    }
  }

  void reduce_scatter() {
    const std::vector<Buffers> parts = by_group(call_.in);
    const Buffer mine = call_.out.front();
    for (int group = 0; group < layout_.groups(); ++group) {
      const bool own = group == layout_.group;
      const Buffers sums = layout_.leads() ? copy_of(parts[index(group)]) : parts[index(group)];
      const PipelineStep* in = reduce_inside(sums);
      if (layout_.leads())
        in = add(
            HierarchyLink::kBetweenLeaders, {in, agreed_},
            [this_ = &pipeline_, sums, op = sum_, group] {
              return this_->outer->reduce(sums, op, group);
            },
            own ? finish_mean(sums) : nullptr);
      if (!own) continue;
      const Buffer none = {nullptr, 0, mine.dtype};
      Buffers sent(index(layout_.group_size()), none), received = sent;
      if (layout_.leads()) sent = sums;
      received.front() = mine;
      distribute(std::move(sent), std::move(received), in);
    }
  }

  void all_to_all() {
    require_direct("all_to_all");
    add(HierarchyLink::kDirect, {agreed_},
        [this_ = &pipeline_, sent = Buffers(call_.in.begin(), call_.in.end()),
         received = Buffers(call_.out.begin(), call_.out.end())] {
          return this_->options.direct->all_to_all(sent, received);
        });
  }

  void barrier() {
    add(HierarchyLink::kFromLeader, {agreed_},
        [this_ = &pipeline_] { return this_->out->barrier(); });
  }

  // Small host memory: within a group, every rank receives everything from every other.
  void exchange() {
    const std::size_t bytes = call_.in.front().bytes();
    std::size_t largest = 0;
    for (int group = 0; group < layout_.groups(); ++group)
      largest = std::max(largest, index(layout_.group_size(group)));
    struct ExchangeMemory {
      std::vector<std::byte> inside, between, all;
    };
    const auto memory = std::make_shared<ExchangeMemory>();
    memory->inside.resize(bytes * largest);
    const std::size_t total = bytes * index(layout_.size());
    memory->all.resize(total);
    const PipelineStep* in =
        add(HierarchyLink::kToLeader, {inside_},
            [this_ = &pipeline_, mine = call_.in.front().data, bytes, memory] {
              return this_->inner->start_exchange(mine, bytes, memory->inside.data());
            });
    if (layout_.leads()) {
      memory->between.resize(bytes * largest * index(layout_.groups()));
      in = add(
          HierarchyLink::kBetweenLeaders, {in, agreed_},
          [this_ = &pipeline_, memory, block = bytes * largest] {
            return this_->outer->start_exchange(memory->inside.data(), block,
                                                memory->between.data());
          },
          [this_ = &pipeline_, memory, bytes, largest] {
            const HierarchyLayout& layout = this_->layout;
            for (int group = 0; group < layout.groups(); ++group)
              for (int place = 0; bytes > 0 && place < layout.group_size(group); ++place) {
                const int rank = layout.ranks_of(group)[index(place)];
                std::memcpy(
                    memory->all.data() + bytes * index(rank),
                    memory->between.data() + bytes * (largest * index(group) + index(place)),
                    bytes);
              }
          });
    }
    const auto copies =
        std::make_shared<std::vector<std::byte>>(total * index(layout_.group_size()));
    add(
        HierarchyLink::kFromLeader, {in},
        [this_ = &pipeline_, memory, copies, total] {
          return this_->out->start_exchange(memory->all.data(), total, copies->data());
        },
        [copies, bytes, gathered = Buffers(call_.out.begin(), call_.out.end())] {
          for (std::size_t rank = 0; bytes > 0 && rank < gathered.size(); ++rank)
            std::memcpy(gathered[rank].data, copies->data() + bytes * rank, bytes);
        });
  }

  // Messages are not ordered with collectives, so they start at once.
  void message() {
    const bool sends = call_.kind == CollectiveKind::kSend;
    const Buffer& buffer = sends ? call_.in.front() : call_.out.front();
    const bool near = layout_.group_of(call_.root) == layout_.group;
    if (!near) require_direct(name_of(call_.kind));
    Communicator& by = near ? *pipeline_.inner : *pipeline_.options.direct;
    const int peer = near ? layout_.place_of(call_.root) : call_.root;
    work_->add_message(near ? HierarchyLink::kToLeader : HierarchyLink::kDirect,
                       sends ? by.send(buffer, peer) : by.recv(buffer, peer));
  }

  // ---- Steps that several collectives use.

  template <class Start>
  const PipelineStep* add(HierarchyLink link, std::initializer_list<const PipelineStep*> after,
                          Start start, std::function<void()> then = {}) {
    return work_->add(link, std::move(start), after, std::move(then));
  }

  // Towards the group's leader.
  const PipelineStep* reduce_inside(const Buffers& parts) {
    return add(HierarchyLink::kToLeader, {inside_}, [this_ = &pipeline_, parts, op = sum_] {
      return this_->inner->reduce(parts, op, 0);
    });
  }

  // From the group's leader.
  void hand_out(const Buffers& parts, const PipelineStep* after) {
    add(HierarchyLink::kFromLeader, {after},
        [this_ = &pipeline_, parts] { return this_->out->broadcast(parts, 0); });
  }

  void distribute(Buffers sent, Buffers received, const PipelineStep* after) {
    add(HierarchyLink::kFromLeader, {after},
        [this_ = &pipeline_, sent = std::move(sent), received = std::move(received)] {
          return this_->out->all_to_all(sent, received);
        });
  }

  std::function<void()> finish_mean(const Buffers& sums) {
    if (call_.op != ReduceOp::kMean) return nullptr;
    return [device = &pipeline_.inner->device(), sums, by = layout_.size()] {
      divide_on(*device, sums, by);
    };
  }

  Buffers copy_of(const Buffers& parts) {
    Device& device = pipeline_.inner->device();
    auto* at = static_cast<std::byte*>(work_->scratch(bytes_of(parts)));
    Buffers copies = parts;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      copies[i].data = at;
      at += parts[i].bytes();
      if (parts[i].count > 0)
        copy_between(device, copies[i].data, device, parts[i].data, parts[i].bytes());
    }
    return copies;
  }

  std::vector<Buffers> by_group(std::span<const Buffer> by_rank) const {
    std::vector<Buffers> groups;
    for (int group = 0; group < layout_.groups(); ++group) {
      Buffers& shares = groups.emplace_back();
      for (int rank : layout_.ranks_of(group)) shares.push_back(by_rank[index(rank)]);
    }
    return groups;
  }

  void require_direct(std::string_view what) const {
    if (!pipeline_.options.direct)
      fail<FailedPreconditionError>(
          "[{}] this hierarchical communicator has no direct communicator of all ranks", what);
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Pipeline& pipeline_;
  const HierarchyLayout& layout_;
  const CheckedCall& call_;
  const ReduceOp sum_;
  const bool message_;
  const std::shared_ptr<HierarchicalWork> work_;
  const PipelineStep* inside_ = nullptr;  // the calls of the group's ranks match
  const PipelineStep* agreed_ = nullptr;  // all calls match, as far as this rank checks
};

}  // namespace

namespace {

// Whether the tree over all ranks equals the tree over the groups applied to the trees inside them.
bool supports_tree_sum(const HierarchyLayout& layout) {
  const int size = layout.group_size(0);
  const int last = layout.groups() - 1;
  bool fits = (size & (size - 1)) == 0 && layout.group_size(last) <= size;
  for (int group = 0; group < last; ++group) fits = fits && layout.group_size(group) == size;
  return fits && std::is_sorted(layout.rank_at.begin(), layout.rank_at.end());
}

}  // namespace

std::shared_ptr<HierarchicalWork> build_work(const std::shared_ptr<Pipeline>& pipeline,
                                             const CheckedCall& call) {
  if (call.op == ReduceOp::kTreeSum && !supports_tree_sum(pipeline->layout))
    throw UnimplementedError(
        "[all_reduce] a tree sum over groups that do not have 1, 2, 4, ... ranks each, as many in "
        "each, in the order of the ranks: give every process as many replicas, 1, 2, 4, ...");
  return HierarchicalWorkBuilder(pipeline, call).make();
}

}  // namespace tandem::hierarchical
