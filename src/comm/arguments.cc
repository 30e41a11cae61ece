#include "comm/arguments.h"

#include <algorithm>
#include <vector>

#include "core/status.h"

namespace tandem {

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
    if (part.dtype == bool_)
      fail<InvalidArgumentError>("[{}] bool elements cannot be reduced; cast them first", what);
}

void check_shares(std::string_view what, std::span<const Buffer> shares, int size) {
  if (shares.size() != static_cast<std::size_t>(size))
    fail<InvalidArgumentError>("[{}] expected a buffer for each of {} ranks, got {}", what, size,
                               shares.size());
  for (const Buffer& share : shares)
    if (share.dtype != shares.front().dtype)
      fail<InvalidArgumentError>("[{}] expected buffers of one dtype, got {} and {}", what,
                                 name_of(shares.front().dtype), name_of(share.dtype));
}

void check_shares(std::string_view what, std::span<const Buffer> shares, const Buffer& mine,
                  int rank, int size) {
  check_shares(what, shares, size);
  const Buffer& share = shares[static_cast<std::size_t>(rank)];
  if (mine.count != share.count || mine.dtype != share.dtype)
    fail<InvalidArgumentError>("[{}] this rank's own buffer has {} {}, its share {} {}", what,
                               mine.count, name_of(mine.dtype), share.count, name_of(share.dtype));
}

void check_split(std::span<const int> ranks, int size) {
  if (ranks.empty()) fail<InvalidArgumentError>("[split] expected at least one rank, got none");
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (int rank : ranks) {
    if (rank < 0 || rank >= size)
      fail<InvalidArgumentError>("[split] expected ranks of 0 to {}, got {}", size - 1, rank);
    if (seen[static_cast<std::size_t>(rank)])
      fail<InvalidArgumentError>("[split] rank {} is named twice", rank);
    seen[static_cast<std::size_t>(rank)] = true;
  }
}

}  // namespace tandem
