#include "comm/gloo/module/moves.h"

#include <algorithm>
#include <cstring>

#include "comm/combine.h"
#include "comm/gloo/module/mesh.h"
#include "comm/process/announcement.h"
#include "comm/process/contiguous.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

// Phases of a collective; 0 is the announcement.
constexpr int kCounts = 1, kScatter = 2, kGather = 3;

// Of all ranks, combined while the next ones travel. Smaller ones cost more to hand from thread to
// thread than is gained.
constexpr std::int64_t kWindowBytes = 8 << 20;
constexpr std::size_t kRelayBytes = 64 << 10;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

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

Moves::Moves(Line& line, const Collective& collective, const Mesh& mesh, Scratch& scratch,
             std::atomic<std::uint64_t>& steps)
    : line_(line),
      collective_(collective),
      names_(mesh.names()),
      rank_(mesh.rank()),
      size_(mesh.size()),
      element_(size_of(collective.signature.dtype)),
      scratch_(scratch),
      steps_(steps) {}

void Moves::begin() {
  if (collective_.signature.kind != CollectiveKind::kAllReduce) return;
  if (bytes_with_announcement(collective_) > 0 || collective_.signature.count == 0) return;
  all_.emplace(collective_.in);
  all_->gather();
  slices_ = slices_at(0);
  window_ = open_window(slices_);
}

void Moves::run(std::span<const std::byte* const> small) {
  small_ = small;
  const auto in_one_piece = [&](void (Moves::*move)(const Share&)) {
    const Contiguous all(collective_.in);
    all.gather();
    (this->*move)({all.data(), all.count()});
    all.scatter();
  };
  switch (collective_.signature.kind) {
    case CollectiveKind::kAllReduce:
      return all_ ? all_reduce() : in_one_piece(&Moves::all_reduce_small);
    case CollectiveKind::kReduce: return in_one_piece(&Moves::reduce);
    case CollectiveKind::kBroadcast: return in_one_piece(&Moves::broadcast);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange:
      return all_gather(static_cast<const std::byte*>(collective_.in.front().data),
                        shares_of(collective_.out));
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(shares_of(collective_.in),
                            static_cast<std::byte*>(collective_.out.front().data));
    case CollectiveKind::kAllToAll:
      return all_to_all(shares_of(collective_.in), shares_of(collective_.out));
    case CollectiveKind::kBarrier: return;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: break;
  }
  fail<InternalError>("[gloo] {} is no collective", name_of(collective_.signature.kind));
}

void Moves::all_reduce() {
  const std::int64_t step = kWindowBytes / static_cast<std::int64_t>(element_);
  std::vector<Post> sent, received;
  for (std::int64_t begin = 0; begin < all_->count(); begin += step) {
    std::vector<Share> next;
    Window next_window;
    if (begin + step < all_->count()) {
      next = slices_at(begin + step);
      next_window = open_window(next);
    }
    combine_window(window_, slices_[index(rank_)].data);
    // Combined slices arrive where this rank's elements were, which have gone by now.
    wait_all(sent);
    wait_all(received);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      post_recv(received, peer, kGather, slices_[index(peer)]);
      post_send(sent, peer, kGather, slices_[index(rank_)]);
    }
    slices_ = std::move(next);
    window_ = std::move(next_window);
  }
  wait_all(received);
  wait_all(sent);
  all_->scatter();
}

void Moves::all_reduce_small(const Share& all) {
  if (all.count == 0) return;
  std::vector<const void*> inputs(small_.begin(), small_.end());
  void* const output = all.data;
  combine(inputs, {&output, 1}, all.count, collective_.signature.dtype, collective_.signature.op,
          CombineOrder::kInOrder);
}

void Moves::reduce(const Share& all) {
  const int root = collective_.signature.root;
  std::vector<Share> shares(index(size_));
  shares[index(root)] = all;
  reduce_scatter(shares, rank_ == root ? all.data : nullptr);
}

void Moves::reduce_scatter(const std::vector<Share>& shares, std::byte* result) {
  std::int64_t most = 0;
  for (const Share& share : shares) most = std::max(most, share.count);
  const std::int64_t step = kWindowBytes / static_cast<std::int64_t>(element_) / size_;
  const auto window_at = [&](std::int64_t begin) {
    std::vector<Share> parts;
    for (const Share& share : shares) parts.push_back(part(share, begin, begin + step));
    return open_window(parts);
  };
  if (most == 0) return;
  Window window = window_at(0);
  for (std::int64_t begin = 0; begin < most; begin += step) {
    Window next;
    if (begin + step < most) next = window_at(begin + step);
    combine_window(window, result ? result + static_cast<std::size_t>(begin) * element_ : nullptr);
    window = std::move(next);
  }
}

// From the root alone while that is little; else every rank passes a slice on to the others.
void Moves::broadcast(const Share& all) {
  const int root = collective_.signature.root;
  std::vector<Post> sent, received;
  if (size_ == 2 || static_cast<std::size_t>(all.count) * element_ <= kRelayBytes) {
    if (rank_ != root) post_recv(received, root, kScatter, all);
    for (int peer = 0; rank_ == root && peer < size_; ++peer)
      if (peer != root) post_send(sent, peer, kScatter, all);
    wait_all(received);
    return wait_all(sent);
  }
  const std::vector<Share> slices = slices_of(all);
  if (rank_ == root) {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != root) post_send(sent, peer, kScatter, slices[index(peer)]);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != root) post_send(sent, peer, kGather, slices[index(root)]);
    return wait_all(sent);
  }
  std::vector<Post> own;
  post_recv(own, root, kScatter, slices[index(rank_)]);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) post_recv(received, peer, kGather, slices[index(peer)]);
  wait_all(own);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && peer != root) post_send(sent, peer, kGather, slices[index(rank_)]);
  wait_all(received);
  wait_all(sent);
}

void Moves::all_gather(const std::byte* mine, const std::vector<Share>& gathered) {
  const Share& own = gathered[index(rank_)];
  const auto bytes = [&](const Share& share) {
    return static_cast<std::size_t>(share.count) * element_;
  };
  std::vector<Post> sent, received;
  for (int peer = 0; peer < size_; ++peer) {
    const Share& share = gathered[index(peer)];
    if (peer == rank_ || share.count == 0) continue;
    if (bytes(share) <= kSmallBytes)
      std::memcpy(share.data, small_[index(peer)], bytes(share));
    else
      post_recv(received, peer, kGather, share);
  }
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && bytes(own) > kSmallBytes)
      post_send(sent, peer, kGather, {const_cast<std::byte*>(mine), own.count});
  if (own.count > 0 && own.data != mine) std::memcpy(own.data, mine, bytes(own));
  wait_all(received);
  wait_all(sent);
}

void Moves::all_to_all(const std::vector<Share>& sent_shares, const std::vector<Share>& shares) {
  agree_on_counts(sent_shares, shares);
  std::vector<Post> sent, received;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) post_recv(received, peer, kScatter, shares[index(peer)]);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) post_send(sent, peer, kScatter, sent_shares[index(peer)]);
  const Share& own = shares[index(rank_)];
  if (own.count > 0 && own.data != sent_shares[index(rank_)].data)
    std::memcpy(own.data, sent_shares[index(rank_)].data,
                static_cast<std::size_t>(own.count) * element_);
  wait_all(received);
  wait_all(sent);
}

void Moves::agree_on_counts(const std::vector<Share>& sent_shares,
                            const std::vector<Share>& shares) {
  std::vector<ShareCounts> all(index(size_) * index(size_));
  const std::size_t row = index(size_) * sizeof(ShareCounts);
  const auto row_of = [&](int rank) { return all.data() + index(rank) * index(size_); };
  for (int peer = 0; peer < size_; ++peer)
    row_of(rank_)[peer] = {sent_shares[index(peer)].count, shares[index(peer)].count};
  std::vector<Post> posts;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    posts.push_back(line_.recv(peer, slot(kCounts), row_of(peer), row));
    posts.push_back(line_.send(peer, slot(kCounts), row_of(rank_), row));
  }
  wait_all(posts);
  check_shares_agree(collective_, all, size_, names_);
}

Moves::Window Moves::open_window(const std::vector<Share>& shares) {
  Window window;
  window.mine = shares[index(rank_)];
  const std::size_t bytes = static_cast<std::size_t>(window.mine.count) * element_;
  window.others = scratch_.take(bytes * index(size_));
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_)
      post_recv(window.received, peer, kScatter,
                {window.others.get() + index(peer) * bytes, window.mine.count});
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) post_send(window.sent, peer, kScatter, shares[index(peer)]);
  return window;
}

void Moves::combine_window(Window& window, std::byte* result) {
  wait_all(window.received);
  const std::size_t bytes = static_cast<std::size_t>(window.mine.count) * element_;
  if (bytes > 0) {
    std::vector<const void*> inputs;
    for (int rank = 0; rank < size_; ++rank)
      inputs.push_back(rank == rank_ ? window.mine.data
                                     : window.others.get() + index(rank) * bytes);
    void* const output = result;
    combine(inputs, {&output, 1}, window.mine.count, collective_.signature.dtype,
            collective_.signature.op, CombineOrder::kInOrder);
  }
  wait_all(window.sent);
}

void Moves::post_send(std::vector<Post>& posts, int peer, int phase, const Share& share) {
  if (share.count > 0)
    posts.push_back(line_.send(peer, slot(phase), share.data,
                               static_cast<std::size_t>(share.count) * element_));
}

void Moves::post_recv(std::vector<Post>& posts, int peer, int phase, const Share& share) {
  if (share.count > 0)
    posts.push_back(line_.recv(peer, slot(phase), share.data,
                               static_cast<std::size_t>(share.count) * element_));
}

void Moves::wait_all(std::vector<Post>& posts) {
  for (Post& post : posts) {
    line_.wait(post);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }
  posts.clear();
}

// What sets out early is for those alone who call the same.
std::uint64_t Moves::slot(int phase) const {
  const Signature& signature = collective_.signature;
  std::uint64_t hash = 0;
  if (all_)
    hash = (signature.layout ^ static_cast<std::uint64_t>(signature.op) * 0x9e3779b97f4a7c15u ^
            static_cast<std::uint64_t>(signature.count) * 0xbf58476d1ce4e5b9u) >>
           40;
  return collective_slot(collective_.sequence, phase, hash);
}

std::vector<Moves::Share> Moves::slices_at(std::int64_t begin) const {
  const std::int64_t step = kWindowBytes / static_cast<std::int64_t>(element_);
  return slices_of(part({all_->data(), all_->count()}, begin, begin + step));
}

std::vector<Moves::Share> Moves::slices_of(const Share& all) const {
  std::vector<Share> slices;
  for (int rank = 0; rank < size_; ++rank)
    slices.push_back(part(all, all.count * rank / size_, all.count * (rank + 1) / size_));
  return slices;
}

Moves::Share Moves::part(const Share& share, std::int64_t begin, std::int64_t end) const {
  begin = std::min(begin, share.count);
  end = std::min(end, share.count);
  if (begin == end) return {};
  return {share.data + static_cast<std::size_t>(begin) * element_, end - begin};
}

std::vector<Moves::Share> Moves::shares_of(std::span<const Buffer> buffers) const {
  std::vector<Share> shares;
  for (const Buffer& buffer : buffers)
    shares.push_back({static_cast<std::byte*>(buffer.data), buffer.count});
  return shares;
}

}  // namespace tandem::gloo_backend
