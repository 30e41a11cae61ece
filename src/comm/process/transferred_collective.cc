#include "comm/process/transferred_collective.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "comm/combine.h"
#include "core/status.h"

namespace tandem {
namespace {

// Phases of a collective; 0 is the announcement.
constexpr int kCounts = 1, kScatter = 2, kGather = 3;
static_assert(kGather < TransferredCollective::kPhases);

constexpr std::size_t kRelayBytes = 64 << 10;

std::size_t place(int rank) { return static_cast<std::size_t>(rank); }

ElementSpan share_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data), buffer.count};
}

std::vector<ElementSpan> shares_of(std::span<const Buffer> buffers) {
  std::vector<ElementSpan> shares;
  for (const Buffer& buffer : buffers) shares.push_back(share_of(buffer));
  return shares;
}

}  // namespace

// Deterministic reductions made of sends and receives; sums are in the order of the ranks.
//
// The elements are processed in windows. In each window every rank receives its slice from all
// others, reduces it, and sends the result to the ranks that need it; the next window is in flight
// meanwhile. This sends the minimum number of bytes, in two phases whatever the number of ranks.
class WindowedReduction {
 public:
  // The references must outlive it.
  WindowedReduction(Transfers& transfers, Scratch& scratch, const TransferOptions& options,
                    const Signature& signature)
      : transfers_(transfers),
        scratch_(scratch),
        options_(options),
        signature_(signature),
        element_(size_of(signature.dtype)),
        results_(transfers) {}
  WindowedReduction(const WindowedReduction&) = delete;
  WindowedReduction& operator=(const WindowedReduction&) = delete;

  // Call one of these once. It starts the reduction without blocking. Elements are reduced in
  // place, on all ranks or on the root.
  void all_reduce(const ElementSpan& all);
  void reduce(const ElementSpan& all, int root) {
    std::vector<ElementSpan> shares(place(options_.size));
    shares[place(root)] = all;
    reduce_scatter(shares, all.data);
  }
  // Rank r receives the reduction of shares[r]. `result` may be this rank's element of `shares`.
  void reduce_scatter(const std::vector<ElementSpan>& shares, std::byte* result);

  // Makes progress without waiting; returns whether the reduction is complete. Increments `steps`
  // for each step done.
  bool advance(std::uint64_t& steps);

 private:
  struct Window {
    std::vector<ElementSpan> slices;  // by rank
    std::byte* result = nullptr;
    Scratch::Block others;  // received slices, one per rank
    TransferSet received;
    TransferSet sent;  // the slices sent, if results must not arrive in their memory
  };
  // Sets the slices of a window to the elements from `begin` to `end`.
  using Cut = std::function<void(Window& window, std::int64_t begin, std::int64_t end)>;

  void start(std::int64_t elements, std::int64_t step, Cut cut) {
    cut_ = std::move(cut);
    end_ = elements;
    step_ = std::max<std::int64_t>(step, 1);
    open_next();
    open_next();
  }
  void open_next();
  void combine(Window& window);
  void receive_results(const Window& window) {
    for (int peer = 0; peer < options_.size; ++peer)
      if (peer != options_.rank)
        results_.receive(peer, kGather, window.slices[place(peer)].data,
                         bytes(window.slices[place(peer)]));
  }
  void send_results(const Window& window) {
    const ElementSpan& mine = window.slices[place(options_.rank)];
    for (int peer = 0; peer < options_.size; ++peer)
      if (peer != options_.rank) results_.send(peer, kGather, mine.data, bytes(mine));
  }
  ElementSpan part(const ElementSpan& share, std::int64_t begin, std::int64_t end) const {
    begin = std::min(begin, share.count);
    end = std::min(end, share.count);
    if (begin == end) return {};
    return {share.data + static_cast<std::size_t>(begin) * element_, end - begin};
  }
  std::size_t bytes(const ElementSpan& share) const {
    return static_cast<std::size_t>(share.count) * element_;
  }

  Transfers& transfers_;
  Scratch& scratch_;
  const TransferOptions options_;
  const Signature& signature_;
  const std::size_t element_;
  bool gathers_ = false;  // every rank receives every result
  Cut cut_;
  std::int64_t begin_ = 0, end_ = 0, step_ = 1;  // the elements of windows not yet opened
  std::deque<Window> open_;
  TransferSet results_;  // transfers of reduced slices, and sends of slices in place
};

void WindowedReduction::all_reduce(const ElementSpan& all) {
  gathers_ = true;
  start(all.count, options_.window_bytes / static_cast<std::int64_t>(element_),
        [this, all](Window& window, std::int64_t begin, std::int64_t end) {
          const std::int64_t count = end - begin, size = options_.size;
          for (std::int64_t rank = 0; rank < size; ++rank)
            window.slices.push_back(
                part(all, begin + count * rank / size, begin + count * (rank + 1) / size));
          window.result = window.slices[place(options_.rank)].data;
        });
}

void WindowedReduction::reduce_scatter(const std::vector<ElementSpan>& shares, std::byte* result) {
  std::int64_t most = 0;
  for (const ElementSpan& share : shares) most = std::max(most, share.count);
  start(most, options_.window_bytes / static_cast<std::int64_t>(element_) / options_.size,
        [this, shares, result](Window& window, std::int64_t begin, std::int64_t end) {
          for (const ElementSpan& share : shares) window.slices.push_back(part(share, begin, end));
          window.result = result ? result + static_cast<std::size_t>(begin) * element_ : nullptr;
        });
}

void WindowedReduction::open_next() {
  if (begin_ == end_) return;
  const std::int64_t end = std::min(end_, begin_ + step_);
  Window& window = open_.emplace_back(
      Window{.received = TransferSet(transfers_), .sent = TransferSet(transfers_)});
  cut_(window, begin_, end);
  begin_ = end;
  const ElementSpan& mine = window.slices[place(options_.rank)];
  window.others = scratch_.take(bytes(mine) * place(options_.size));
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank)
      window.received.receive(peer, kScatter, window.others.get() + bytes(mine) * place(peer),
                              bytes(mine));
  if (gathers_ && transfers_.receives_into_sent()) receive_results(window);
  TransferSet& sent = transfers_.receives_into_sent() ? results_ : window.sent;
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank)
      sent.send(peer, kScatter, window.slices[place(peer)].data, bytes(window.slices[place(peer)]));
}

bool WindowedReduction::advance(std::uint64_t& steps) {
  while (!open_.empty()) {
    Window& window = open_.front();
    // Results arrive in the memory of the slices sent, so the sends must be complete.
    if (!window.received.complete() || !window.sent.complete()) return false;
    combine(window);
    if (gathers_) {
      if (!transfers_.receives_into_sent()) receive_results(window);
      send_results(window);
    }
    open_.pop_front();
    open_next();
    ++steps;
  }
  return results_.complete();
}

void WindowedReduction::combine(Window& window) {
  const ElementSpan& mine = window.slices[place(options_.rank)];
  if (mine.count == 0) return;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < options_.size; ++rank)
    inputs.push_back(rank == options_.rank ? mine.data
                                           : window.others.get() + bytes(mine) * place(rank));
  void* const output = window.result;
  tandem::combine(inputs, {&output, 1}, mine.count, signature_.dtype, signature_.op,
                  CombineOrder::kInOrder);
}

std::size_t bytes_with_announcement(const Collective& collective, int rank, std::size_t limit) {
  std::size_t bytes = 0;
  switch (collective.signature.kind) {
    case CollectiveKind::kAllReduce:
      for (const Buffer& buffer : collective.in) bytes += buffer.bytes();
      break;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: bytes = collective.out[place(rank)].bytes(); break;
    default: break;
  }
  return bytes <= limit ? bytes : 0;
}

std::size_t write_announcement(const Collective& collective, int rank, std::size_t limit,
                               std::byte* to) {
  const Announcement mine = announce(collective);
  std::memcpy(to, &mine, sizeof(mine));
  std::size_t bytes = sizeof(mine);
  if (bytes_with_announcement(collective, rank, limit) == 0) return bytes;
  for (const Buffer& buffer : collective.in) {
    if (buffer.count > 0) std::memcpy(to + bytes, buffer.data, buffer.bytes());
    bytes += buffer.bytes();
  }
  return bytes;
}

void check_announcements(const Collective& collective,
                         std::span<const std::byte* const> announcements, const RankNames& names) {
  std::vector<Announcement> all(announcements.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    std::memcpy(&all[rank], announcements[rank], sizeof(Announcement));
  check_announcements(collective, all, names);
}

Contiguous::Contiguous(std::span<const Buffer> buffers) : buffers_(buffers) {
  std::size_t bytes = 0;
  bool apart = false;
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    auto* const begin = static_cast<std::byte*>(buffer.data);
    if (!data_) data_ = begin;
    apart = apart || begin != data_ + bytes;
    bytes += buffer.bytes();
    count_ += buffer.count;
  }
  if (!apart) return;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  data_ = copy_.get();
}

void Contiguous::gather() const {
  if (!copy_) return;
  std::byte* at = data_;
  for (const Buffer& buffer : buffers_) {
    if (buffer.count == 0) continue;
    std::memcpy(at, buffer.data, buffer.bytes());
    at += buffer.bytes();
  }
}

void Contiguous::scatter() const {
  if (!copy_) return;
  const std::byte* at = data_;
  for (const Buffer& buffer : buffers_) {
    if (buffer.count == 0) continue;
    std::memcpy(buffer.data, at, buffer.bytes());
    at += buffer.bytes();
  }
}

TransferredCollective::TransferredCollective(Transfers& transfers, const Collective& collective,
                                             const RankNames& names, Scratch& scratch,
                                             const TransferOptions& options)
    : transfers_(transfers),
      collective_(collective),
      names_(names),
      scratch_(scratch),
      options_(options),
      rank_(options.rank),
      size_(options.size),
      first_(transfers_),
      last_(transfers_) {}

TransferredCollective::~TransferredCollective() = default;

bool TransferredCollective::sends_small() const {
  return bytes_with_announcement(collective_, rank_, options_.small_limit) > 0;
}

void TransferredCollective::start_early() {
  const Signature& signature = collective_.signature;
  if (signature.kind == CollectiveKind::kAllReduce && signature.count > 0 && !sends_small())
    all_reduce();
}

void TransferredCollective::all_reduce() {
  gather();
  reduction().all_reduce(all());
}

WindowedReduction& TransferredCollective::reduction() {
  reduction_ =
      std::make_unique<WindowedReduction>(transfers_, scratch_, options_, collective_.signature);
  return *reduction_;
}

void TransferredCollective::start(std::span<const std::byte* const> announcements) {
  const Signature& signature = collective_.signature;
  if (reduction_) return;  // started by start_early()
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      if (sends_small())
        combine_small(announcements);
      else
        all_reduce();
      return;
    case CollectiveKind::kReduce: gather(); return reduction().reduce(all(), signature.root);
    case CollectiveKind::kBroadcast: gather(); return broadcast(all());
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: return all_gather(announcements);
    case CollectiveKind::kReduceScatter:
      return reduction().reduce_scatter(shares_of(collective_.in),
                                        share_of(collective_.out.front()).data);
    case CollectiveKind::kAllToAll: return all_to_all();
    case CollectiveKind::kBarrier: return;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: break;
  }
  fail<InternalError>("[comm] {} is no collective", name_of(signature.kind));
}

bool TransferredCollective::advance(std::uint64_t& steps) {
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

void TransferredCollective::combine_small(std::span<const std::byte* const> announcements) {
  gather();
  std::vector<const void*> inputs;
  for (const std::byte* announcement : announcements)
    inputs.push_back(announcement + sizeof(Announcement));
  void* const output = all_->data();
  combine(inputs, {&output, 1}, all_->count(), collective_.signature.dtype,
          collective_.signature.op, CombineOrder::kInOrder);
}

// Small data: the root sends to all. Otherwise the root sends one slice to each rank, and every
// rank forwards its slice to the others.
void TransferredCollective::broadcast(const ElementSpan& all) {
  const int root = collective_.signature.root;
  if (size_ > 2 && bytes(all) > kRelayBytes) return pass_on_slices(all);
  if (rank_ == root)
    send_to_all(last_, kScatter, all);
  else
    receive(last_, root, kScatter, all);
}

void TransferredCollective::pass_on_slices(const ElementSpan& all) {
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

void TransferredCollective::all_gather(std::span<const std::byte* const> announcements) {
  const ElementSpan mine = share_of(collective_.in.front());
  const ElementSpan own = share_of(collective_.out[place(rank_)]);
  for (int peer = 0; peer < size_; ++peer) {
    const ElementSpan share = share_of(collective_.out[place(peer)]);
    if (peer == rank_ || share.count == 0) continue;
    if (bytes_with_announcement(collective_, peer, options_.small_limit) > 0)
      std::memcpy(share.data, announcements[place(peer)] + sizeof(Announcement), bytes(share));
    else
      receive(last_, peer, kGather, share);
  }
  if (!sends_small()) send_to_all(last_, kGather, {mine.data, own.count});
  if (own.count > 0 && own.data != mine.data) std::memcpy(own.data, mine.data, bytes(own));
}

void TransferredCollective::all_to_all() {
  counts_.resize(place(size_) * place(size_));
  const std::size_t row = place(size_) * sizeof(TransferCounts);
  const auto row_of = [&](int rank) { return counts_.data() + place(rank) * place(size_); };
  for (int peer = 0; peer < size_; ++peer)
    row_of(rank_)[peer] = {collective_.in[place(peer)].count, collective_.out[place(peer)].count};
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    first_.receive(peer, kCounts, reinterpret_cast<std::byte*>(row_of(peer)), row);
    first_.send(peer, kCounts, reinterpret_cast<const std::byte*>(row_of(rank_)), row);
  }
  then_ = [this] {
    check_counts_match(collective_, counts_, size_, names_);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) receive(last_, peer, kScatter, share_of(collective_.out[place(peer)]));
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) send(last_, peer, kScatter, share_of(collective_.in[place(peer)]));
    const ElementSpan from = share_of(collective_.in[place(rank_)]);
    const ElementSpan to = share_of(collective_.out[place(rank_)]);
    if (to.count > 0 && to.data != from.data) std::memcpy(to.data, from.data, bytes(to));
  };
}

void TransferredCollective::send_to_all(TransferSet& set, int phase, const ElementSpan& share) {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) send(set, peer, phase, share);
}

void TransferredCollective::send(TransferSet& set, int peer, int phase, const ElementSpan& share) {
  set.send(peer, phase, share.data, bytes(share));
}

void TransferredCollective::receive(TransferSet& set, int peer, int phase,
                                    const ElementSpan& share) {
  set.receive(peer, phase, share.data, bytes(share));
}

std::size_t TransferredCollective::bytes(const ElementSpan& share) const {
  return static_cast<std::size_t>(share.count) * size_of(collective_.signature.dtype);
}

bool TransferredMessage::advance(std::uint64_t& steps) {
  const int peer = collective_.signature.root;
  const bool sends = collective_.signature.kind == CollectiveKind::kSend;
  const Buffer& buffer = sends ? collective_.in.front() : collective_.out.front();
  auto* const data = static_cast<std::byte*>(buffer.data);
  if (!std::exchange(started_, true)) {
    if (sends) {
      header_ = header_of(buffer);
      first_.send(peer, 0, reinterpret_cast<const std::byte*>(&header_), sizeof(header_));
      data_.send(peer, 1, data, buffer.bytes());
    } else {
      first_.receive(peer, 0, reinterpret_cast<std::byte*>(&header_), sizeof(header_));
    }
  }
  if (!first_.complete()) return false;
  if (!sends && !compared_) {
    check_message(header_, peer, buffer, rank_, names_);
    compared_ = true;
    ++steps;
    data_.receive(peer, 1, data, buffer.bytes());
  }
  return data_.complete();
}

}  // namespace tandem
