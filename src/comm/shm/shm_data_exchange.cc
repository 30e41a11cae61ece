#include "comm/shm/shm_data_exchange.h"

#include <algorithm>
#include <cstring>

#include "comm/combine.h"
#include "core/status.h"

namespace tandem::shm {
namespace {

// Up to this size, reducing everything on every rank is faster than a second wait.
constexpr std::int64_t kSmallBytes = 16 << 10;
constexpr std::int64_t kBlockBytes = 8 << 10;
// The size of a stretch, the unit of a slice that other ranks may process. Long, compared with
// claiming it.
constexpr std::int64_t kStretchBytes = 256 << 10;

// The start of the buffers if they are contiguous, else null. Ignores empty buffers.
void* single_run(std::span<const Buffer> buffers) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    auto* data = static_cast<std::byte*>(buffer.data);
    if (!begin) begin = end = data;
    if (data != end) return nullptr;
    end += buffer.bytes();
  }
  return begin;
}

std::int64_t largest(std::span<const Buffer> buffers) {
  std::int64_t count = 0;
  for (const Buffer& buffer : buffers) count = std::max(count, buffer.count);
  return count;
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

ShmDataExchange::ShmDataExchange(ShmGroup& group, const Collective& collective)
    : group_(group),
      collective_(collective),
      signature_(collective.signature),
      me_(group.rank()),
      ranks_(group.size()),
      element_(static_cast<std::int64_t>(size_of(signature_.dtype))),
      share_bytes_(static_cast<std::int64_t>(group.layout().share_bytes())),
      inputs_(static_cast<std::size_t>(ranks_)) {
  if (signature_.kind == CollectiveKind::kAllToAll) return;
  const std::int64_t bytes = signature_.count * element_;
  small_ = bytes <= kSmallBytes && cut_into_pieces().pieces <= 1;
  if (small_) return;
  std::int64_t given = 0;
  for (const Buffer& buffer : collective_.in) given += static_cast<std::int64_t>(buffer.bytes());
  if (const void* run = single_run(collective_.in))
    offset_ = group_.arena().offset_of(run, static_cast<std::size_t>(given));
  else if (given == 0)
    offset_ = 0;
}

std::int64_t ShmDataExchange::offset_of(int rank) const {
  return group_.call(rank, collective_.sequence).offset;
}

bool ShmDataExchange::all_have_published() const {
  switch (signature_.kind) {
    case CollectiveKind::kBroadcast: return offset_of(signature_.root) >= 0;
    case CollectiveKind::kAllToAll:  // the offsets of another rank's shares are unknown
    case CollectiveKind::kBarrier: return false;
    default:
      for (int rank = 0; rank < ranks_; ++rank)
        if (offset_of(rank) < 0) return false;
      return true;
  }
}

std::size_t ShmDataExchange::bytes_published_by(int rank) const {
  switch (signature_.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: return collective_.out[static_cast<std::size_t>(rank)].bytes();
    default: return static_cast<std::size_t>(signature_.count * element_);
  }
}

// Reads a peer's description of its memory once and validates it before any access to that memory.
void ShmDataExchange::find_published_buffers() {
  published_.resize(static_cast<std::size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) {
    if (signature_.kind == CollectiveKind::kBroadcast && rank != signature_.root) continue;
    std::byte*& given = published_[static_cast<std::size_t>(rank)];
    if (rank == me_)
      given = static_cast<std::byte*>(single_run(collective_.in));
    else if (const std::size_t bytes = bytes_published_by(rank); bytes > 0)
      given = group_.buffer_of(rank, offset_of(rank), bytes);
  }
}

ShmPlan ShmDataExchange::make_plan() {
  ShmPlan plan = cut_into_pieces();
  if (small_) return plan;
  const bool reduces =
      signature_.kind == CollectiveKind::kAllReduce || signature_.kind == CollectiveKind::kReduce;
  if (all_have_published()) {
    find_published_buffers();
    const std::int64_t bytes = signature_.count * element_ / ranks_;
    return {.method = ShmPlan::Method::kDirect,
            .stretches = reduces ? static_cast<std::uint32_t>(bytes / kStretchBytes + 1) : 0};
  }
  if (reduces) plan.method = ShmPlan::Method::kSliced;
  return plan;
}

ShmPlan ShmDataExchange::cut_into_pieces() const {
  const auto cut = [](std::int64_t piece, std::int64_t count) {
    return ShmPlan{.pieces = static_cast<std::uint32_t>((count + piece - 1) / piece),
                   .piece = piece};
  };
  const std::int64_t whole = static_cast<std::int64_t>(group_.layout().piece_bytes()) / element_;
  switch (signature_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast: return cut(whole, signature_.count);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: return cut(whole, largest(collective_.out));
    case CollectiveKind::kReduceScatter:
      return cut(share_bytes_ / element_, largest(collective_.in));
    case CollectiveKind::kAllToAll: {
      std::int64_t most = 1;                     // the first piece contains the counts
      for (int rank = 0; rank < ranks_; ++rank)  // each rank knows only its own
        most = std::max(most, group_.call(rank, collective_.sequence).signature.count);
      return cut((share_bytes_ - static_cast<std::int64_t>(sizeof(PieceHeader))) / element_, most);
    }
    default: return {};
  }
}

ShmDataExchange::ElementRange ShmDataExchange::range(const ShmPlan& plan, std::uint32_t k,
                                                     std::int64_t count) const {
  const std::int64_t begin = std::min(count, plan.piece * k);
  return {begin, std::min(count, begin + plan.piece)};
}

ShmDataExchange::ElementRange ShmDataExchange::slice(ElementRange all, int rank) const {
  return part(all, rank, ranks_);
}

ShmDataExchange::ElementRange ShmDataExchange::part(ElementRange all, std::int64_t k,
                                                    std::int64_t parts) const {
  const std::int64_t count = all.end - all.begin;
  const std::int64_t line = static_cast<std::int64_t>(kLine) / element_;
  const auto edge = [&](std::int64_t of) {
    return all.begin + std::min(count, (count * of / parts + line - 1) / line * line);
  };
  return {edge(k), edge(k + 1)};
}

std::byte* ShmDataExchange::share(int from, int to, std::uint64_t number) const {
  return group_.piece(from, number) + share_bytes_ * to;
}

template <class Body>
void ShmDataExchange::for_runs(ElementRange span, const Body& body) const {
  std::int64_t at = 0;
  for (const Buffer& buffer : collective_.in) {
    const std::int64_t begin = std::max(span.begin, at);
    const std::int64_t end = std::min(span.end, at + buffer.count);
    if (begin < end) body(own(buffer, begin - at), begin, end - begin);
    at += buffer.count;
    if (at >= span.end) break;
  }
}

void ShmDataExchange::combine_into(std::span<void* const> outputs, std::int64_t count) const {
  combine(inputs_, outputs, count, signature_.dtype, signature_.op, CombineOrder::kInOrder);
}

void ShmDataExchange::put(const ShmPlan& plan, std::uint32_t k, std::uint64_t number) const {
  std::byte* piece = group_.piece(me_, number);
  const auto put_span = [&](ElementRange span, std::int64_t origin) {
    for_runs(span, [&](const std::byte* data, std::int64_t at, std::int64_t count) {
      give(piece + (at - origin) * element_, data, count * element_);
    });
  };
  switch (signature_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce: {
      const ElementRange all = range(plan, k, signature_.count);
      if (plan.method == ShmPlan::Method::kOnce) return put_span(all, all.begin);
      const ElementRange mine = slice(all, me_);  // no other rank reads this slice
      put_span({all.begin, mine.begin}, all.begin);
      put_span({mine.end, all.end}, all.begin);
      return;
    }
    case CollectiveKind::kBroadcast: {
      const ElementRange all = range(plan, k, signature_.count);
      if (me_ == signature_.root) put_span(all, all.begin);
      return;
    }
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: {
      const ElementRange all = range(plan, k, collective_.in.front().count);
      give(piece, own(collective_.in.front(), all.begin), (all.end - all.begin) * element_);
      return;
    }
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer == me_) continue;
        const Buffer& given = collective_.in[static_cast<std::size_t>(peer)];
        const ElementRange all = range(plan, k, given.count);
        std::byte* to = share(me_, peer, number);
        if (signature_.kind == CollectiveKind::kAllToAll) {
          reinterpret_cast<PieceHeader*>(to)->message.count = given.count;
          to += sizeof(PieceHeader);
        }
        give(to, own(given, all.begin), (all.end - all.begin) * element_);
      }
      return;
    default: return;
  }
}

void ShmDataExchange::reduce(const ShmPlan& plan, std::uint32_t k, std::uint64_t number) {
  const ElementRange all = range(plan, k, signature_.count);
  const bool keeps = signature_.kind == CollectiveKind::kAllReduce || me_ == signature_.root;
  for_runs(slice(all, me_), [&](std::byte* data, std::int64_t at, std::int64_t count) {
    // Blocks keep the results in the L1 cache until they are copied.
    const std::int64_t block = kBlockBytes / element_;
    for (std::int64_t begin = 0; begin < count; begin += block) {
      const std::int64_t length = std::min(block, count - begin);
      const std::int64_t place = (at + begin - all.begin) * element_;
      std::byte* const mine = data + begin * element_;
      std::byte* const given = group_.piece(me_, number) + place;
      for (int rank = 0; rank < ranks_; ++rank)
        inputs_[static_cast<std::size_t>(rank)] =
            rank == me_ ? mine : group_.piece(rank, number) + place;
      void* const output[] = {keeps ? mine : given};
      combine_into(output, length);
      if (keeps) give(given, mine, length * element_);
    }
  });
}

void ShmDataExchange::take(const ShmPlan& plan, std::uint32_t k, std::uint64_t number) {
  switch (signature_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce: {
      if (signature_.kind == CollectiveKind::kReduce && me_ != signature_.root) return;
      const ElementRange all = range(plan, k, signature_.count);
      if (plan.method == ShmPlan::Method::kSliced) {
        for (int rank = 0; rank < ranks_; ++rank) {
          if (rank == me_) continue;
          for_runs(slice(all, rank), [&](std::byte* data, std::int64_t at, std::int64_t count) {
            copy_bytes(data, group_.piece(rank, number) + (at - all.begin) * element_,
                       count * element_);
          });
        }
        return;
      }
      for_runs(all, [&](std::byte* data, std::int64_t at, std::int64_t count) {
        for (int rank = 0; rank < ranks_; ++rank)
          inputs_[static_cast<std::size_t>(rank)] =
              rank == me_ ? data : group_.piece(rank, number) + (at - all.begin) * element_;
        void* const outputs[] = {data};
        combine_into(outputs, count);
      });
      return;
    }
    case CollectiveKind::kBroadcast: {
      if (me_ == signature_.root) return;
      const ElementRange all = range(plan, k, signature_.count);
      for_runs(all, [&](std::byte* data, std::int64_t at, std::int64_t count) {
        copy_bytes(data, group_.piece(signature_.root, number) + (at - all.begin) * element_,
                   count * element_);
      });
      return;
    }
    case CollectiveKind::kReduceScatter: {
      const Buffer& result = collective_.out.front();
      const ElementRange all = range(plan, k, result.count);
      for (int rank = 0; rank < ranks_; ++rank)
        inputs_[static_cast<std::size_t>(rank)] =
            rank == me_ ? own(collective_.in[static_cast<std::size_t>(me_)], all.begin)
                        : share(rank, me_, number);
      void* const outputs[] = {own(result, all.begin)};
      if (all.begin < all.end) combine_into(outputs, all.end - all.begin);
      return;
    }
    default: return take_shares(plan, k, number);
  }
}

// Collectives with one buffer per rank: all_gather, exchange, all_to_all.
void ShmDataExchange::take_shares(const ShmPlan& plan, std::uint32_t k, std::uint64_t number) {
  const bool gathers = signature_.kind != CollectiveKind::kAllToAll;
  for (std::size_t i = 0; i < collective_.out.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Buffer& result = collective_.out[i];
    const ElementRange all = range(plan, k, result.count);
    const std::byte* from = nullptr;
    if (rank == me_) {
      from = own(gathers ? collective_.in.front() : collective_.in[i], all.begin);
    } else if (gathers) {
      from = group_.piece(rank, number);
    } else {
      from = share(rank, me_, number);
      if (k == 0) check_received(from, rank);
      from += sizeof(PieceHeader);
    }
    copy_bytes(own(result, all.begin), from, (all.end - all.begin) * element_);
  }
}

void ShmDataExchange::check_received(const std::byte* share, int from) const {
  const std::int64_t sent = reinterpret_cast<const PieceHeader*>(share)->message.count;
  const std::int64_t expected = collective_.out[static_cast<std::size_t>(from)].count;
  if (sent != expected)
    fail<InvalidArgumentError>(
        "[all_to_all] ranks diverged at collective {}: rank {} sent {} {} to rank {}, which "
        "expected "
        "{}",
        collective_.sequence, group_.names()[from], sent, name_of(signature_.dtype),
        group_.names()[me_], expected);
}

std::byte* ShmDataExchange::place(int rank, std::int64_t at) const {
  return published_[static_cast<std::size_t>(rank)] + at * element_;
}

void ShmDataExchange::process_directly(const ShmPlan& plan, int rank, std::uint32_t k) {
  const ElementRange all = part(slice({0, signature_.count}, rank), k, plan.stretches);
  if (all.begin == all.end) return;
  outputs_.clear();
  for (int peer = 0; peer < ranks_; ++peer) {
    std::byte* const at = place(peer, all.begin);
    inputs_[static_cast<std::size_t>(peer)] = at;
    if (signature_.kind == CollectiveKind::kAllReduce || peer == signature_.root)
      outputs_.push_back(at);
  }
  combine_into(outputs_, all.end - all.begin);
}

void ShmDataExchange::process_directly() {
  switch (signature_.kind) {
    case CollectiveKind::kBroadcast:
      if (me_ != signature_.root)
        for_runs({0, signature_.count}, [&](std::byte* data, std::int64_t at, std::int64_t count) {
          copy_bytes(data, place(signature_.root, at), count * element_);
        });
      return;
    case CollectiveKind::kReduceScatter: {
      std::int64_t begin = 0;
      for (int rank = 0; rank < me_; ++rank)
        begin += collective_.in[static_cast<std::size_t>(rank)].count;
      for (int rank = 0; rank < ranks_; ++rank)
        inputs_[static_cast<std::size_t>(rank)] = place(rank, begin);
      void* const outputs[] = {collective_.out.front().data};
      if (collective_.out.front().count > 0) combine_into(outputs, collective_.out.front().count);
      return;
    }
    default:  // all_gather, exchange
      for (std::size_t i = 0; i < collective_.out.size(); ++i)
        copy_bytes(collective_.out[i].data, place(static_cast<int>(i), 0),
                   static_cast<std::int64_t>(collective_.out[i].bytes()));
      return;
  }
}

}  // namespace tandem::shm
