#include "comm/exchange_bytes.h"

#include <algorithm>
#include <cstdint>

namespace tandem {

std::vector<std::string> exchange_bytes(Communicator& communicator, std::string_view mine) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(ranks);
  communicator.exchange(&size, sizeof(size), sizes.data());
  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded(mine), all(longest * ranks, '\0');
  padded.resize(longest);
  if (longest > 0) communicator.exchange(padded.data(), longest, all.data());
  std::vector<std::string> result;
  result.reserve(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.push_back(all.substr(rank * longest, sizes[rank]));
  return result;
}

}  // namespace tandem
