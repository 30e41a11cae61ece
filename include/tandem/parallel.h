// Processes that a program starts itself. After PyTorch's torch.multiprocessing.spawn.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "tandem/errors.h"

namespace tandem::parallel {

struct SpawnOptions {
  int nprocs = 1;
  // From SIGTERM to SIGKILL, for ranks that another one takes down.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
};

// Runs fn(rank, world_size) in `nprocs` new processes and waits for all of them. They are forked,
// so that whatever the program holds is there, and find each other by env:// (RANK, LOCAL_RANK,
// WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TANDEM_JOB_TOKEN), on this machine alone.
// Where OMP_NUM_THREADS is not set they share out the cores.
//
// A rank that fails takes the others down: they get SIGTERM, and SIGKILL after `grace`. Its own
// error is thrown here, as a ProcessRaisedError or ProcessExitedError, and told to the ranks of its
// process group. The ranks die with this process, even where it is killed.
//
// Call it before the runtime is up: FailedPreconditionError when this process has several threads,
// of which a forked one would have one alone. InvalidArgumentError for `nprocs` below 1.
void spawn(const std::function<void(int rank, int world_size)>& fn,
           const SpawnOptions& options = {});

// The function threw: "[spawn] -- Process 1 terminated with the following error: ..."
class ProcessRaisedError : public AbortedError {
 public:
  ProcessRaisedError(const std::string& message, int rank) : AbortedError(message), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

// The process ended otherwise: "[spawn] process 1 terminated with signal SIGKILL", "[spawn] process
// 1 terminated with exit code 3"
class ProcessExitedError : public AbortedError {
 public:
  ProcessExitedError(const std::string& message, int rank, int exit_code)
      : AbortedError(message), rank_(rank), exit_code_(exit_code) {}
  int rank() const { return rank_; }
  int exit_code() const { return exit_code_; }  // 128 + the signal's number for a signal

 private:
  int rank_;
  int exit_code_;
};

}  // namespace tandem::parallel
