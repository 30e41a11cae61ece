// What every communicator checks of a call before it begins. Each throws InvalidArgumentError.
#pragma once

#include <span>
#include <string_view>

#include "comm/communicator.h"

namespace tandem {

void check_root(std::string_view what, int root, int size);
void check_peer(std::string_view what, int peer, int rank, int size);
void check_reducible(std::string_view what, std::span<const Buffer> parts);
// A share a rank, of one dtype; with `mine`, this rank's, of as many elements.
void check_shares(std::string_view what, std::span<const Buffer> shares, int size);
void check_shares(std::string_view what, std::span<const Buffer> shares, const Buffer& mine,
                  int rank, int size);
// Different ranks of the group, at least one.
void check_split(std::span<const int> ranks, int size);

}  // namespace tandem
