// Tests whose ranks are processes in a process group.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "comm/gloo/gloo_backend.h"
#include "core/parallel.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/forked_ranks.h"
#include "tandem/comm.h"
#include "tandem/errors.h"

namespace tandem::testing {

struct GroupOfRanks {
  int size = 2;
  std::string backend = "auto";
  std::chrono::milliseconds timeout = kFarAway;
};

// Options for a rendezvous in `folder`.
inline comm::InitOptions meeting_in(const TemporaryDirectory& folder, const GroupOfRanks& group,
                                    int rank) {
  return {.backend = group.backend,
          .init_method = "file://" + (folder / "job").string(),
          .timeout = group.timeout,
          .world_size = group.size,
          .rank = rank};
}

// Runs body(rank) in one process per rank, on one thread, between init_process_group and
// destroy_process_group. Returns the exit codes. REQUIRES: this process has no other threads.
inline ExitCodes run_group(const GroupOfRanks& group, const std::function<void(int rank)>& body) {
  const TemporaryDirectory folder;
  return run_processes(group.size, [&](int rank) {
    const ThreadBudget one(1);
    comm::init_process_group(meeting_in(folder, group, rank));
    body(rank);
    comm::destroy_process_group();
  });
}

// The same, and expects every rank to succeed.
inline void expect_group(const GroupOfRanks& group, const std::function<void(int rank)>& body) {
  EXPECT_EQ(run_group(group, body), ExitCodes(static_cast<std::size_t>(group.size), 0));
}

}  // namespace tandem::testing
