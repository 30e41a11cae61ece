#include "core/parallel.h"

#include <pthread.h>

#include <filesystem>
#include <latch>

#include "core/callers.h"
#include "core/float_traps.h"
#include "core/threads.h"

namespace tandem {
namespace {

thread_local int team_size = 0;  // 0: not set, use all cores

// A forked process has no team if its parent had one, and OpenMP would wait for it. It computes
// with one thread.
bool forks_with_threads = false;
bool teamless = false;
const bool watches_forks =
    pthread_atfork(
        [] {
          std::error_code none;
          const std::filesystem::directory_iterator threads("/proc/self/task", none);
          forks_with_threads = none || std::distance(begin(threads), end(threads)) > 1;
        },
        nullptr,
        [] {
          if (!forks_with_threads) return;
          teamless = true;
          team_size = 0;
          limit_available_cores(1);
        }) == 0;

// Starts the threads of a team for a moment: the OpenMP library ends the process where it cannot
// start one.
void expect_threads(int threads) {
  std::latch started(threads);
  std::vector<std::thread> others;
  const auto end = [&](std::ptrdiff_t missing) {
    started.count_down(missing);
    for (std::thread& thread : others) thread.join();
  };
  try {
    for (int i = 1; i < threads; ++i)
      others.push_back(start_thread([&started] { started.arrive_and_wait(); }));
  } catch (...) {
    end(threads - std::ssize(others));
    throw;
  }
  end(1);
}

// The part of `threads` that a team of the calling thread is sure to get. OpenMP may give fewer
// threads than it is asked for. oneDNN plans for omp_get_max_threads() and leaves out a part of the
// result if the team is smaller.
int sure_team(int threads) {
  if (teamless || threads == 1) return 1;
  thread_local int expected = 1;  // the largest team of this thread so far
  if (threads > expected) [[unlikely]] {
    expect_threads(threads);
    expected = threads;
  }
  // OMP_MAX_ACTIVE_LEVELS, and a host's parallel region.
  if (omp_get_active_level() >= omp_get_max_active_levels()) return 1;
  const int limit = omp_get_thread_limit();  // OMP_THREAD_LIMIT
  if (limit >= threads) return threads;
  return omp_get_level() == 0 ? limit : 1;  // a nested team shares the limit with the outer one
}

// Calls `set` on each other thread of the calling thread's team with its environment.
template <class Set>
void in_team(std::vector<std::fenv_t>& environments, const Set& set) {
  const int threads = static_cast<int>(environments.size()) - 1;
#pragma omp parallel num_threads(threads)
  if (const int me = omp_get_thread_num(); me > 0)
    set(environments[static_cast<std::size_t>(me) + 1]);
}

}  // namespace

int thread_budget() { return team_size; }

int intra_op_threads() { return team_size > 0 ? team_size : available_cores(); }

void LoopError::keep(std::int64_t begin) {
  const std::lock_guard lock(mutex_);
  if (error_ && begin_ <= begin) return;
  error_ = std::current_exception();
  begin_ = begin;
}

bool may_compute(int threads) {
  return !has_float_traps() && intra_op_threads() == threads && omp_get_max_threads() == threads &&
         omp_get_dynamic() == 0 && sure_team(threads) == threads;
}

ThreadBudget::ThreadBudget(int threads)
    : previous_(team_size),
      omp_threads_(omp_get_max_threads()),
      omp_dynamic_(omp_get_dynamic() != 0) {
  team_size = sure_team(std::max(1, threads));
  omp_set_num_threads(team_size);
  if (omp_dynamic_) omp_set_dynamic(0);
  if (has_float_traps()) [[unlikely]] {
    // The team's first: new threads start with the traps of this one.
    host_.resize(static_cast<std::size_t>(team_size) + 1);
    in_team(host_, [](std::fenv_t& host) { std::feholdexcept(&host); });
    std::feholdexcept(&host_[0]);
  }
}

ThreadBudget::~ThreadBudget() {
  if (!host_.empty()) [[unlikely]] {
    in_team(host_, [](const std::fenv_t& host) { std::fesetenv(&host); });
    std::fesetenv(&host_[0]);
  }
  team_size = previous_;
  omp_set_num_threads(omp_threads_);
  if (omp_dynamic_) omp_set_dynamic(1);
}

}  // namespace tandem
