#include "core/parallel.h"

#include <sched.h>

#include <atomic>
#include <limits>

#include "core/core_limit.h"

namespace tandem {
namespace {

thread_local int team_size = 0;  // 0: not set, use all cores
std::atomic<int> core_limit = std::numeric_limits<int>::max();

// The part of `threads` that a team of the calling thread is sure to get. OpenMP may give fewer
// threads than it is asked for. oneDNN plans for omp_get_max_threads() and leaves out a part of the
// result if the team is smaller.
int sure_team(int threads) {
  // OMP_MAX_ACTIVE_LEVELS, and a host's parallel region.
  if (omp_get_active_level() >= omp_get_max_active_levels()) return 1;
  const int limit = omp_get_thread_limit();  // OMP_THREAD_LIMIT
  if (limit >= threads) return threads;
  return omp_get_level() == 0 ? limit : 1;  // a nested team shares the limit with the outer one
}

}  // namespace

int available_cores() {
  static const int cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    // OMP_NUM_THREADS and OMP_THREAD_LIMIT, where set, are limits too.
    const int limit = std::max(1, std::min(omp_get_max_threads(), omp_get_thread_limit()));
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return limit;
    return std::clamp(CPU_COUNT(&set), 1, limit);
  }();
  return std::min(cores, core_limit.load(std::memory_order_relaxed));
}

void limit_available_cores(int cores) { core_limit = std::max(1, cores); }

int intra_op_threads() { return team_size > 0 ? team_size : available_cores(); }

void LoopError::keep(std::int64_t begin) {
  const std::lock_guard lock(mutex_);
  if (error_ && begin_ <= begin) return;
  error_ = std::current_exception();
  begin_ = begin;
}

bool has_team(int threads) {
  return intra_op_threads() == threads && omp_get_max_threads() == threads &&
         omp_get_dynamic() == 0 && sure_team(threads) == threads;
}

ThreadBudget::ThreadBudget(int threads)
    : previous_(team_size),
      omp_threads_(omp_get_max_threads()),
      omp_dynamic_(omp_get_dynamic() != 0) {
  team_size = sure_team(std::max(1, threads));
  omp_set_num_threads(team_size);
  if (omp_dynamic_) omp_set_dynamic(0);
}

ThreadBudget::~ThreadBudget() {
  team_size = previous_;
  omp_set_num_threads(omp_threads_);
  if (omp_dynamic_) omp_set_dynamic(1);
}

}  // namespace tandem
