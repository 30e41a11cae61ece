#include "core/parallel.h"

#include <sched.h>

#include <atomic>
#include <limits>

#include "core/core_limit.h"

namespace tandem {
namespace {

thread_local int team_size = 0;  // 0: not set, use all cores
std::atomic<int> core_limit = std::numeric_limits<int>::max();

}  // namespace

int available_cores() {
  static const int cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    // OMP_NUM_THREADS, where set, is a limit too.
    const int limit = std::max(1, omp_get_max_threads());
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

ThreadBudget::ThreadBudget(int threads) : previous_(team_size) {
  team_size = std::max(1, threads);
  omp_set_num_threads(team_size);
}

ThreadBudget::~ThreadBudget() {
  team_size = previous_;
  omp_set_num_threads(intra_op_threads());
}

}  // namespace tandem
