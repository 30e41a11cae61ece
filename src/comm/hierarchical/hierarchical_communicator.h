// One communicator made of two: ranks in groups that are close to each other, and the groups'
// leaders (their first ranks). For threads in processes, and for processes on hosts.
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

// `inner` joins the ranks of this rank's group. `outer` joins the leaders, in the order of the
// groups; it is null except on inner rank 0. By default a rank's number is the number of ranks in
// earlier groups plus inner's rank; options.ranks overrides that. Groups may differ in size. Both
// communicators must be on one device. A collective call.
//
// Reductions run inside the groups first, in the order of `inner`, then between them, in the order
// of `outer`; results are reproducible bit for bit. float16 and bfloat16 are rounded after each of
// the two. A mean is the sum, divided at the end.
//
// A collective advances whenever the rank waits for or tests one of its works or calls progress().
// Except on CUDA devices it also advances while the rank computes
// (src/comm/process/progress_engine.h). The first error aborts the group on all of its ranks.
//
// Throws InvalidArgumentError when `outer` is on the wrong rank or another device, and when
// options.ranks is not a permutation of the ranks.
std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<Communicator> inner,
                                                             std::unique_ptr<Communicator> outer,
                                                             HierarchicalOptions options = {});

}  // namespace tandem
