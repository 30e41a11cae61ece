// Tests whose processes are ranks of a Horovod-compatible job.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "support/forked_ranks.h"
#include "support/processes.h"
#include "tandem/hvd.h"

namespace tandem::testing {

using Settings = std::map<std::string, std::string>;

// Sets a launcher's variables for rank `rank` of `ranks`.
inline void set_rank(int rank, int ranks, int port) {
  const auto set = [](const char* name, int value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", ranks);
  set("LOCAL_WORLD_SIZE", ranks);
  set("MASTER_PORT", port);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
}

// Runs body(rank) in one process per rank, between init() and shutdown(), with these variables set.
// Expects all to succeed.
inline ExitCodes run_hvd(int ranks, const std::function<void(int)>& body,
                         const Settings& environment = {}) {
  const int port = free_port();
  return run_processes(ranks, [&](int rank) {
    set_rank(rank, ranks, port);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    hvd::init();
    body(rank);
    hvd::shutdown();
  });
}

inline void expect_hvd(int ranks, const std::function<void(int)>& body,
                       const Settings& environment = {}) {
  for (int code : run_hvd(ranks, body, environment)) EXPECT_EQ(code, 0);
}

}  // namespace tandem::testing
