// The options of a hierarchical communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"

namespace tandem {

struct HierarchicalOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for each wait
  // Large collectives are split into pieces of this many bytes. While one piece is reduced between
  // the groups, the next is reduced inside them and the previous one is broadcast.
  std::size_t piece_bytes = std::size_t{4} << 20;
  // The rank of each member, by group and position in the group. Empty: counted in this order. The
  // same on every rank.
  std::vector<int> ranks = {};
  // The names of the ranks in error messages, which the inner and outer communicators use too. Not
  // given: each communicator counts its ranks from 0.
  std::optional<RankNames> names = {};
  // Joins all ranks, in the order of `ranks`; null on every rank if there is none. all_to_all, send
  // and recv between groups, and splits without a group's leader need it and throw
  // FailedPreconditionError without it.
  std::unique_ptr<Communicator> direct = nullptr;
};

}  // namespace tandem
