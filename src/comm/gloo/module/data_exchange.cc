#include "comm/gloo/module/data_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/combine.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

// Phases of a collective; 0 is the announcement.
constexpr int kCounts = 1, kScatter = 2, kGather = 3;

// Slices of all ranks in a window, which is reduced while the next one is in flight.
constexpr std::int64_t kWindowBytes = 8 << 20;
constexpr std::size_t kRelayBytes = 64 << 10;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

ElementSpan share_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), buffer.count};
}

std::vector<ElementSpan> shares_of(std::span<const Buffer> buffers) {
  std::vector<ElementSpan> shares;
  for (const Buffer& buffer : buffers) shares.push_back(share_of(buffer));
  return shares;
}

// Distinguishes mismatched calls.
std::uint64_t hash_of(const Signature& signature) {
  return (signature.layout ^ static_cast<std::uint64_t>(signature.op) * 0x9e3779b97f4a7c15u ^
          static_cast<std::uint64_t>(signature.count) * 0xbf58476d1ce4e5b9u) >>
         40;
}

}  // namespace

std::size_t bytes_with_announcement(const Collective& collective) {
  switch (collective.signature.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: break;
    default: return 0;
  }
  std::size_t bytes = 0;
  for (const Buffer& buffer : collective.in) bytes += buffer.bytes();
  return bytes <= kSmallBytes ? bytes : 0;
}

DataExchange::DataExchange(gloo::transport::Context& context, const Collective& collective,
                           const RankNames& names, Scratch& scratch)
    : collective_(collective),
      names_(names),
      rank_(context.rank),
      size_(context.size),
      scratch_(scratch),
      transfers_(context, collective_slot(collective.sequence)),
      first_(transfers_),
      last_(transfers_) {}

void DataExchange::start_early() {
  const Signature& signature = collective_.signature;
  if (signature.kind != CollectiveKind::kAllReduce || signature.count == 0) return;
  if (bytes_with_announcement(collective_) > 0) return;
  transfers_.renumber(collective_slot(collective_.sequence, hash_of(signature)));
  all_.emplace(collective_.in);
  all_->gather();
  reduction().all_reduce(all());
}

WindowedReduction& DataExchange::reduction() {
  return reduction_.emplace(transfers_, scratch_,
                            ReductionOptions{.rank = rank_,
                                             .size = size_,
                                             .dtype = collective_.signature.dtype,
                                             .op = collective_.signature.op,
                                             .window_bytes = kWindowBytes,
                                             .scatter_phase = kScatter,
                                             .gather_phase = kGather});
}

void DataExchange::start(std::span<const std::byte* const> small) {
  const Signature& signature = collective_.signature;
  if (reduction_) return;  // started by start_early()
  if (signature.kind == CollectiveKind::kAllReduce || signature.kind == CollectiveKind::kReduce ||
      signature.kind == CollectiveKind::kBroadcast) {
    all_.emplace(collective_.in);
    all_->gather();
  }
  switch (signature.kind) {
    case CollectiveKind::kAllReduce: return combine_small(small);
    case CollectiveKind::kReduce: return reduction().reduce(all(), signature.root);
    case CollectiveKind::kBroadcast: return broadcast(all());
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: return all_gather(small);
    case CollectiveKind::kReduceScatter:
      return reduction().reduce_scatter(shares_of(collective_.in),
                                        share_of(collective_.out.front()).data);
    case CollectiveKind::kAllToAll: return all_to_all();
    case CollectiveKind::kBarrier: return;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: break;
  }
  fail<InternalError>("[gloo] {} is no collective", name_of(signature.kind));
}

bool DataExchange::advance(std::uint64_t& steps) {
  if (reduction_) {
    if (!reduction_->advance(steps)) return false;
  } else {
    if (!first_.complete()) return false;
    if (then_) {
      std::exchange(then_, nullptr)();
      ++steps;
    }
    if (!last_.complete()) return false;
  }
  if (all_) all_->scatter();
  return true;
}

void DataExchange::combine_small(std::span<const std::byte* const> small) {
  if (all_->count() == 0) return;
  std::vector<const void*> inputs(small.begin(), small.end());
  void* const output = all_->data();
  combine(inputs, {&output, 1}, all_->count(), collective_.signature.dtype,
          collective_.signature.op, CombineOrder::kInOrder);
}

// Small data: the root sends to all. Otherwise the root sends one slice to each rank, and every
// rank forwards its slice to the others.
void DataExchange::broadcast(const ElementSpan& all) {
  const int root = collective_.signature.root;
  if (size_ > 2 && bytes(all) > kRelayBytes) return pass_on_slices(all);
  if (rank_ == root)
    send_to_all(last_, kScatter, all);
  else
    receive(last_, root, kScatter, all);
}

void DataExchange::pass_on_slices(const ElementSpan& all) {
  const int root = collective_.signature.root;
  const auto slice = [this, all](int rank) {
    const std::int64_t begin = all.count * rank / size_, end = all.count * (rank + 1) / size_;
    return ElementSpan{
        all.data + static_cast<std::size_t>(begin) * size_of(collective_.signature.dtype),
        end - begin};
  };
  if (rank_ == root) {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != root) send(last_, peer, kScatter, slice(peer));
    return send_to_all(last_, kGather, slice(root));
  }
  receive(first_, root, kScatter, slice(rank_));
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) receive(last_, peer, kGather, slice(peer));
  then_ = [this, root, mine = slice(rank_)] {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_ && peer != root) send(last_, peer, kGather, mine);
  };
}

void DataExchange::all_gather(std::span<const std::byte* const> small) {
  const ElementSpan mine = share_of(collective_.in.front());
  const ElementSpan own = share_of(collective_.out[index(rank_)]);
  for (int peer = 0; peer < size_; ++peer) {
    const ElementSpan share = share_of(collective_.out[index(peer)]);
    if (peer == rank_ || share.count == 0) continue;
    if (bytes(share) <= kSmallBytes)
      std::memcpy(share.data, small[index(peer)], bytes(share));
    else
      receive(last_, peer, kGather, share);
  }
  if (bytes(own) > kSmallBytes) send_to_all(last_, kGather, {mine.data, own.count});
  if (own.count > 0 && own.data != mine.data) std::memcpy(own.data, mine.data, bytes(own));
}

void DataExchange::all_to_all() {
  counts_.resize(index(size_) * index(size_));
  const std::size_t row = index(size_) * sizeof(TransferCounts);
  const auto row_of = [&](int rank) { return counts_.data() + index(rank) * index(size_); };
  for (int peer = 0; peer < size_; ++peer)
    row_of(rank_)[peer] = {collective_.in[index(peer)].count, collective_.out[index(peer)].count};
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    first_.receive(peer, kCounts, reinterpret_cast<std::byte*>(row_of(peer)), row);
    first_.send(peer, kCounts, reinterpret_cast<const std::byte*>(row_of(rank_)), row);
  }
  then_ = [this] {
    check_counts_match(collective_, counts_, size_, names_);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) receive(last_, peer, kScatter, share_of(collective_.out[index(peer)]));
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) send(last_, peer, kScatter, share_of(collective_.in[index(peer)]));
    const ElementSpan from = share_of(collective_.in[index(rank_)]);
    const ElementSpan to = share_of(collective_.out[index(rank_)]);
    if (to.count > 0 && to.data != from.data) std::memcpy(to.data, from.data, bytes(to));
  };
}

void DataExchange::send_to_all(TransferSet& set, int phase, const ElementSpan& share) {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) send(set, peer, phase, share);
}

void DataExchange::send(TransferSet& set, int peer, int phase, const ElementSpan& share) {
  set.send(peer, phase, share.data, bytes(share));
}

void DataExchange::receive(TransferSet& set, int peer, int phase, const ElementSpan& share) {
  set.receive(peer, phase, share.data, bytes(share));
}

std::size_t DataExchange::bytes(const ElementSpan& share) const {
  return static_cast<std::size_t>(share.count) * size_of(collective_.signature.dtype);
}

}  // namespace tandem::gloo_backend
