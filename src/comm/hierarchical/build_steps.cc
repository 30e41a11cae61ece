#include "comm/hierarchical/build_steps.h"

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

class HierarchyStepBuilder {
 public:
  HierarchyStepBuilder(const Hierarchy& hierarchy, const Collective& collective)
      : hierarchy_(hierarchy),
        layout_(hierarchy_.layout),
        collective_(collective),
        signature_(collective.signature),
        sum_(signature_.op == ReduceOp::kMean ? ReduceOp::kSum : signature_.op),
        steps_(std::make_unique<HierarchySteps>(hierarchy_.inner->device(), collective)) {}

  std::unique_ptr<HierarchySteps> make() {
    if (signature_.kind != CollectiveKind::kSend && signature_.kind != CollectiveKind::kRecv)
      agree();
    switch (signature_.kind) {
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
    return std::move(steps_);
  }

 private:
  // The ranks exchange announcements, first inside the groups, then between the leaders. After a
  // mismatch, errors then name the collective that was called and not one of its steps.
  void agree() {
    HierarchySteps& steps = *steps_;
    inside_ = steps.add(
        HierarchyLink::kToLeader, exchange_of(*hierarchy_.inner, steps.inside), {},
        [this_ = &hierarchy_, &steps] {
          check(steps.collective, steps.inside, this_->names.value_or(RankNames()), [&](int place) {
            return std::vector<int>{this_->layout.ranks_of(this_->layout.group)[index(place)]};
          });
        });
    agreed_ = inside_;
    if (!layout_.leads()) return;
    agreed_ =
        steps.add(HierarchyLink::kBetweenLeaders, exchange_of(*hierarchy_.outer, steps.between),
                  {inside_}, [this_ = &hierarchy_, &steps] {
                    check(steps.collective, steps.between, this_->names.value_or(RankNames()),
                          [&](int group) { return this_->layout.ranks_of(group); });
                  });
  }

  std::function<std::shared_ptr<CollectiveWork>()> exchange_of(Communicator& among,
                                                               std::vector<Announcement>& all) {
    return [&among, &all, mine = &steps_->mine] {
      all.resize(index(among.size()));
      return among.start_exchange(mine, sizeof(*mine), all.data());
    };
  }

  // `ranks_at(i)`: the ranks that announcement i stands for.
  template <class RanksAt>
  static void check(const Collective& collective, const std::vector<Announcement>& all,
                    const RankNames& names, const RanksAt& ranks_at) {
    if (std::all_of(all.begin(), all.end(), [&](const Announcement& one) {
          return one.sequence == collective.sequence &&
                 matches(one.signature, collective.signature);
        }))
      return;
    std::vector<RankCall> calls;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (int rank : ranks_at(static_cast<int>(i)))
        calls.push_back({rank, all[i].signature, {all[i].name, all[i].step}});
    throw InvalidArgumentError(std::string(kErrorPrefix) +
                               describe_mismatch(collective.sequence, calls, names));
  }

  void all_reduce() {
    for (const Buffers& piece : cut(collective_.in, hierarchy_.piece_bytes)) {
      const HierarchyStep* in = reduce_inside(piece);
      if (layout_.leads())
        in = add(
            HierarchyLink::kBetweenLeaders, {in, agreed_},
            [this_ = &hierarchy_, piece, op = sum_] { return this_->outer->all_reduce(piece, op); },
            finish_mean(piece));
      hand_out(piece, in);
    }
  }

  void reduce() {
    const int home = layout_.group_of(signature_.root), place = layout_.place_of(signature_.root);
    const bool at_home = home == layout_.group;
    const Buffers parts(collective_.in.begin(), collective_.in.end());
    // A leader keeps its own elements unless it is the root.
    const Buffers sums = layout_.leads() && !(at_home && place == 0) ? copy_of(parts) : parts;
    const HierarchyStep* in = reduce_inside(sums);
    if (layout_.leads())
      in = add(
          HierarchyLink::kBetweenLeaders, {in, agreed_},
          [this_ = &hierarchy_, sums, op = sum_, home] {
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
    const int home = layout_.group_of(signature_.root), place = layout_.place_of(signature_.root);
    const bool at_home = home == layout_.group;
    for (const Buffers& piece : cut(collective_.in, hierarchy_.piece_bytes)) {
      const HierarchyStep* in = inside_;
      if (at_home)
        in = add(HierarchyLink::kToLeader, {inside_}, [this_ = &hierarchy_, piece, place] {
          return this_->inner->broadcast(piece, place);
        });
      if (layout_.leads())
        in = add(HierarchyLink::kBetweenLeaders, {in, agreed_}, [this_ = &hierarchy_, piece, home] {
          return this_->outer->broadcast(piece, home);
        });
      if (!at_home) hand_out(piece, in);
    }
  }

  void all_gather() {
    const Buffer mine = collective_.in.front();
    const std::vector<Buffers> gathered = by_group(collective_.out);
    const HierarchyStep* own =
        add(HierarchyLink::kToLeader, {inside_},
            [this_ = &hierarchy_, mine, group = gathered[index(layout_.group)]] {
              return this_->inner->all_gather(mine, group);
            });
    for (int group = 0; group < layout_.groups(); ++group) {
      const Buffers& share = gathered[index(group)];
      const HierarchyStep* in = own;
      if (layout_.leads())
        in = add(
            HierarchyLink::kBetweenLeaders, {own, agreed_},
            [this_ = &hierarchy_, share, group] { return this_->outer->broadcast(share, group); });
      if (group != layout_.group) hand_out(share, in);
    }
  }

  void reduce_scatter() {
    const std::vector<Buffers> parts = by_group(collective_.in);
    const Buffer mine = collective_.out.front();
    for (int group = 0; group < layout_.groups(); ++group) {
      const bool own = group == layout_.group;
      const Buffers sums = layout_.leads() ? copy_of(parts[index(group)]) : parts[index(group)];
      const HierarchyStep* in = reduce_inside(sums);
      if (layout_.leads())
        in = add(
            HierarchyLink::kBetweenLeaders, {in, agreed_},
            [this_ = &hierarchy_, sums, op = sum_, group] {
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
    add(HierarchyLink::kDirect, {agreed_},
        [this_ = &hierarchy_, sent = Buffers(collective_.in.begin(), collective_.in.end()),
         received = Buffers(collective_.out.begin(), collective_.out.end())] {
          return this_->direct->all_to_all(sent, received);
        });
  }

  void barrier() {
    add(HierarchyLink::kFromLeader, {agreed_},
        [this_ = &hierarchy_] { return this_->out->barrier(); });
  }

  // Small host memory: within a group, every rank receives everything from every other.
  void exchange() {
    const std::size_t bytes = collective_.in.front().bytes();
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
    const HierarchyStep* in =
        add(HierarchyLink::kToLeader, {inside_},
            [this_ = &hierarchy_, mine = collective_.in.front().data, bytes, memory] {
              return this_->inner->start_exchange(mine, bytes, memory->inside.data());
            });
    if (layout_.leads()) {
      memory->between.resize(bytes * largest * index(layout_.groups()));
      in = add(
          HierarchyLink::kBetweenLeaders, {in, agreed_},
          [this_ = &hierarchy_, memory, block = bytes * largest] {
            return this_->outer->start_exchange(memory->inside.data(), block,
                                                memory->between.data());
          },
          [this_ = &hierarchy_, memory, bytes, largest] {
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
        [this_ = &hierarchy_, memory, copies, total] {
          return this_->out->start_exchange(memory->all.data(), total, copies->data());
        },
        [copies, bytes, gathered = Buffers(collective_.out.begin(), collective_.out.end())] {
          for (std::size_t rank = 0; bytes > 0 && rank < gathered.size(); ++rank)
            std::memcpy(gathered[rank].data, copies->data() + bytes * rank, bytes);
        });
  }

  // Messages are not ordered with collectives, so they start at once.
  void message() {
    const bool sends = signature_.kind == CollectiveKind::kSend;
    const Buffer& buffer = sends ? collective_.in.front() : collective_.out.front();
    const int peer = signature_.root;
    const bool near = layout_.group_of(peer) == layout_.group;
    Communicator& by = near ? *hierarchy_.inner : *hierarchy_.direct;
    const int to = near ? layout_.place_of(peer) : peer;
    steps_->add_message(
        near ? HierarchyLink::kToLeader : HierarchyLink::kDirect,
        [&by, sends, buffer, to] { return sends ? by.send(buffer, to) : by.recv(buffer, to); });
  }

  // ---- Steps that several collectives use.

  template <class Start>
  const HierarchyStep* add(HierarchyLink link, std::initializer_list<const HierarchyStep*> after,
                           Start start, std::function<void()> then = {}) {
    return steps_->add(link, std::move(start), after, std::move(then));
  }

  // Towards the group's leader.
  const HierarchyStep* reduce_inside(const Buffers& parts) {
    return add(HierarchyLink::kToLeader, {inside_}, [this_ = &hierarchy_, parts, op = sum_] {
      return this_->inner->reduce(parts, op, 0);
    });
  }

  // From the group's leader.
  void hand_out(const Buffers& parts, const HierarchyStep* after) {
    add(HierarchyLink::kFromLeader, {after},
        [this_ = &hierarchy_, parts] { return this_->out->broadcast(parts, 0); });
  }

  void distribute(Buffers sent, Buffers received, const HierarchyStep* after) {
    add(HierarchyLink::kFromLeader, {after},
        [this_ = &hierarchy_, sent = std::move(sent), received = std::move(received)] {
          return this_->out->all_to_all(sent, received);
        });
  }

  std::function<void()> finish_mean(const Buffers& sums) {
    if (signature_.op != ReduceOp::kMean) return nullptr;
    return [device = &hierarchy_.inner->device(), sums, by = layout_.size()] {
      divide_on(*device, sums, by);
    };
  }

  Buffers copy_of(const Buffers& parts) {
    DeviceImpl& device = hierarchy_.inner->device();
    auto* at = static_cast<std::byte*>(steps_->scratch(bytes_of(parts)));
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

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  const Hierarchy& hierarchy_;
  const HierarchyLayout& layout_;
  const Collective& collective_;
  const Signature& signature_;
  const ReduceOp sum_;
  std::unique_ptr<HierarchySteps> steps_;
  const HierarchyStep* inside_ = nullptr;  // the calls of the group's ranks match
  const HierarchyStep* agreed_ = nullptr;  // all calls match, as far as this rank checks
};

}  // namespace

std::unique_ptr<HierarchySteps> build_steps(const Hierarchy& hierarchy,
                                            const Collective& collective) {
  return HierarchyStepBuilder(hierarchy, collective).make();
}

}  // namespace tandem::hierarchical
