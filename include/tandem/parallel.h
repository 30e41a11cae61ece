/// @file
/// Starting the processes of a job from a program. As torch.multiprocessing.spawn.
#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/errors.h"

/// Data-parallel training over processes.
namespace tandem::parallel {

/// Options of spawn().
struct SpawnOptions {
  /// Numbers that the function gets after the rank. Default: the number of processes, if it takes
  /// one.
  std::vector<int> args{};
  int nprocs = 1;    ///< number of processes
  bool join = true;  ///< must be true: spawn() waits for the processes
  /// Time between SIGTERM and SIGKILL for ranks that are stopped because another one failed.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
};

/// Runs fn(rank, world_size) in `nprocs` forked processes on this machine and waits for all of
/// them. They find each other through env:// (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT, TANDEM_JOB_TOKEN). If OMP_NUM_THREADS is not set, they share the
/// cores. As torch.multiprocessing.spawn.
///
/// If a rank fails, the others get SIGTERM, and SIGKILL after `grace`. The error is thrown here as
/// ProcessRaisedError or ProcessExitedError, and reported to the other ranks of its process group.
/// The ranks end with this process, even if it is killed.
///
/// Must be called before the runtime is initialized: throws FailedPreconditionError if this process
/// has several threads, because a fork copies only one. Throws InvalidArgumentError if `nprocs` is
/// below 1 and for another number of `args` than the function takes, and UnimplementedError without
/// `join`.
void spawn(const std::function<void(int rank, int world_size)>& fn,
           const SpawnOptions& options = {});
/// spawn(fn, {.nprocs = nprocs}).
template <std::integral Count>
void spawn(const std::function<void(int rank, int world_size)>& fn, Count nprocs) {
  spawn(fn, SpawnOptions{.nprocs = static_cast<int>(nprocs)});
}

namespace detail {
// Throws InvalidArgumentError unless there are `count` args.
void expect_args(const SpawnOptions& options, std::size_t count);
}  // namespace detail
/// The same for a function of the rank alone, and for one of three numbers, of which `args` are the
/// last two.
template <class Fn>
requires(!std::is_invocable_v<Fn&, int, int> &&
         (std::is_invocable_v<Fn&, int> ||
          std::is_invocable_v<Fn&, int, int, int>)) void spawn(Fn fn, SpawnOptions options = {}) {
  constexpr bool kRankAlone = std::is_invocable_v<Fn&, int>;
  detail::expect_args(options, kRankAlone ? 0 : 2);
  const std::vector<int> args = std::exchange(options.args, {});
  spawn(
      [&fn, &args](int rank, int) {
        if constexpr (kRankAlone)
          fn(rank);
        else
          fn(rank, args[0], args[1]);
      },
      options);
}

/// spawn(fn, {.nprocs = nprocs}) of a function of the rank alone.
template <class Fn, std::integral Count>
requires(!std::is_invocable_v<Fn&, int, int> &&
         std::is_invocable_v<Fn&, int>) void spawn(Fn fn, Count nprocs) {
  spawn(std::move(fn), SpawnOptions{.nprocs = static_cast<int>(nprocs)});
}

/// The function of a rank threw: "[spawn] -- Process 1 terminated with the following error: ..." As
/// torch.multiprocessing.ProcessRaisedException.
class ProcessRaisedError : public AbortedError {
 public:
  /// For Tandem's own code.
  ProcessRaisedError(const std::string& message, int rank) : AbortedError(message), rank_(rank) {}
  int rank() const { return rank_; }  ///< the rank that failed

 private:
  int rank_;
};

/// The process of a rank ended in another way: "[spawn] process 1 terminated with signal SIGKILL"
/// or "[spawn] process 1 terminated with exit code 3". As
/// torch.multiprocessing.ProcessExitedException.
class ProcessExitedError : public AbortedError {
 public:
  /// For Tandem's own code.
  ProcessExitedError(const std::string& message, int rank, int exit_code)
      : AbortedError(message), rank_(rank), exit_code_(exit_code) {}
  int rank() const { return rank_; }  ///< the rank that failed
  /// Exit code; 128 + the signal's number for a signal.
  int exit_code() const { return exit_code_; }

 private:
  int rank_;
  int exit_code_;
};

}  // namespace tandem::parallel
