// One communicator of two: ranks in groups that are near each other, and the groups' first ranks.
// Threads of a process and the processes; processes of a host and the hosts.
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
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // of every wait
  // What is large goes in pieces of so many bytes: while one is under way between the groups,
  // the next is brought together inside, and the one before is handed out.
  std::size_t piece_bytes = std::size_t{4} << 20;
  // The ranks, by group and place; empty: counted in this order. The same on every rank.
  std::vector<int> ranks = {};
  // The ranks' names in errors, which the communicators below use too. Not given: ranks count from
  // 0, in each of the communicators.
  std::optional<RankNames> names = {};
  // Joins all ranks, in the order of the whole; the same on every rank, or null on every rank. For
  // what goes from one rank to another: all_to_all, and send, recv between groups, which throw
  // FailedPreconditionError without it; and for splits without a group's first rank, likewise.
  std::unique_ptr<Communicator> direct = nullptr;
};

// `inner` joins the ranks of this rank's group; `outer` is null but on inner rank 0, and joins the
// groups' first ranks, in the order of the groups. A rank of the whole is the number of ranks in
// earlier groups + inner's rank, unless options.ranks says otherwise. Groups may differ in size.
// Both must be on one device. Every rank calls this at once.
//
// What is reduced is combined inside the groups first, in the order of `inner`, then between them,
// in that of `outer`: the same bits every run. float16 and bfloat16 are rounded after each of the
// two, and a mean is their sum, divided.
//
// A collective moves on whenever one of a rank's works is waited for or looked at, or progress() is
// called, and, but on a CUDA device, while the rank computes (src/comm/process/progress_engine.h).
// The first error ends the group on all of its ranks.
//
// Throws InvalidArgumentError when `outer` is not where it belongs, or is on another device, and
// when options.ranks are not the ranks.
std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<Communicator> inner,
                                                             std::unique_ptr<Communicator> outer,
                                                             HierarchicalOptions options = {});

}  // namespace tandem
