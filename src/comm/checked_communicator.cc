#include "comm/checked_communicator.h"

#include <algorithm>
#include <string_view>

#include "core/status.h"

namespace tandem {
namespace {

void check_root(std::string_view what, int root, int size) {
  if (root < 0 || root >= size)
    fail<InvalidArgumentError>("[{}] expected a root of 0 to {}, got {}", what, size - 1, root);
}

void check_peer(std::string_view what, int peer, int rank, int size) {
  if (peer < 0 || peer >= size || peer == rank)
    fail<InvalidArgumentError>("[{}] expected a peer of 0 to {} other than this rank, {}; got {}",
                               what, size - 1, rank, peer);
}

void check_reducible(std::string_view what, std::span<const Buffer> parts) {
  for (const Buffer& part : parts)
    if (part.dtype == bool_ || is_storage(part.dtype))
      fail<InvalidArgumentError>("[{}] {} elements cannot be reduced; cast them first", what,
                                 name_of(part.dtype));
}

// One buffer per rank, of one dtype.
void check_shares(std::string_view what, std::span<const Buffer> shares, int size) {
  if (shares.size() != static_cast<std::size_t>(size))
    fail<InvalidArgumentError>("[{}] expected a buffer for each of {} ranks, got {}", what, size,
                               shares.size());
  for (const Buffer& share : shares)
    if (share.dtype != shares.front().dtype)
      fail<InvalidArgumentError>("[{}] expected buffers of one dtype, got {} and {}", what,
                                 name_of(shares.front().dtype), name_of(share.dtype));
}

// The same, and this rank's own buffer has the size of its element.
void check_shares(std::string_view what, std::span<const Buffer> shares, const Buffer& mine,
                  int rank, int size) {
  check_shares(what, shares, size);
  const Buffer& share = shares[static_cast<std::size_t>(rank)];
  if (mine.count != share.count || mine.dtype != share.dtype)
    fail<InvalidArgumentError>("[{}] this rank's own buffer has {} {}, its share {} {}", what,
                               mine.count, name_of(mine.dtype), share.count, name_of(share.dtype));
}

// Distinct ranks of the group, at least one.
void check_split(std::span<const int> ranks, int size) {
  if (ranks.empty()) fail<InvalidArgumentError>("[split] expected at least one rank, got none");
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (int rank : ranks) {
    if (rank < 0 || rank >= size)
      fail<InvalidArgumentError>("[split] expected ranks of 0 to {}, got {}", size - 1, rank);
    if (seen[static_cast<std::size_t>(rank)])
      fail<InvalidArgumentError>("[split] expected each rank once, got {} twice", rank);
    seen[static_cast<std::size_t>(rank)] = true;
  }
}

}  // namespace

bool works_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kBroadcast;
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::all_reduce(std::span<const Buffer> parts,
                                                                ReduceOp op) {
  check_reducible("all_reduce", parts);
  return launch({.kind = CollectiveKind::kAllReduce, .in = parts, .counts = parts, .op = op});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::reduce(std::span<const Buffer> parts,
                                                            ReduceOp op, int root) {
  check_reducible("reduce", parts);
  check_root("reduce", root, size());
  return launch(
      {.kind = CollectiveKind::kReduce, .in = parts, .counts = parts, .op = op, .root = root});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::broadcast(std::span<const Buffer> parts,
                                                               int root) {
  check_root("broadcast", root, size());
  return launch({.kind = CollectiveKind::kBroadcast, .in = parts, .counts = parts, .root = root});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::all_gather(const Buffer& mine,
                                                                std::span<const Buffer> gathered) {
  check_shares("all_gather", gathered, mine, rank(), size());
  return launch(
      {.kind = CollectiveKind::kAllGather, .in = {&mine, 1}, .out = gathered, .counts = gathered});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::reduce_scatter(std::span<const Buffer> parts,
                                                                    const Buffer& mine,
                                                                    ReduceOp op) {
  check_reducible("reduce_scatter", parts);
  check_shares("reduce_scatter", parts, mine, rank(), size());
  return launch({.kind = CollectiveKind::kReduceScatter,
                 .in = parts,
                 .out = {&mine, 1},
                 .counts = parts,
                 .op = op});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::all_to_all(std::span<const Buffer> sent,
                                                                std::span<const Buffer> received) {
  check_shares("all_to_all", received, size());
  check_shares("all_to_all", sent, received[static_cast<std::size_t>(rank())], rank(), size());
  return launch({.kind = CollectiveKind::kAllToAll, .in = sent, .out = received, .counts = sent});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::send(const Buffer& buffer, int peer) {
  check_peer("send", peer, rank(), size());
  const std::span<const Buffer> one(&buffer, 1);
  return launch({.kind = CollectiveKind::kSend, .in = one, .counts = one, .root = peer});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::recv(const Buffer& buffer, int peer) {
  check_peer("recv", peer, rank(), size());
  const std::span<const Buffer> one(&buffer, 1);
  return launch({.kind = CollectiveKind::kRecv, .out = one, .counts = one, .root = peer});
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::barrier() {
  return launch({.kind = CollectiveKind::kBarrier});
}

void CheckedCommunicator::exchange(const void* mine, std::size_t bytes, void* gathered) {
  start_exchange(mine, bytes, gathered)->wait();
}

std::shared_ptr<CollectiveWork> CheckedCommunicator::start_exchange(const void* mine,
                                                                    std::size_t bytes,
                                                                    void* gathered) {
  const auto count = static_cast<std::int64_t>(bytes);
  const Buffer own = {const_cast<void*>(mine), count, uint8};
  std::vector<Buffer> all;
  all.reserve(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer)
    all.push_back(
        {static_cast<std::byte*>(gathered) + static_cast<std::size_t>(peer) * bytes, count, uint8});
  return launch({.kind = CollectiveKind::kExchange, .in = {&own, 1}, .out = all, .counts = all});
}

std::unique_ptr<Communicator> CheckedCommunicator::split(std::span<const int> ranks) {
  check_split(ranks, size());
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  if (found == ranks.end()) return nullptr;
  return split_off({ranks.begin(), ranks.end()}, static_cast<int>(found - ranks.begin()));
}

}  // namespace tandem
