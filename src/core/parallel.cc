#include "core/parallel.h"

#include "core/float_traps.h"

namespace tandem {
namespace {

thread_local int team_size = 0;  // 0: not set, use all cores

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

// Calls `set` on each other thread of the calling thread's team with its environment.
template <class Set>
void in_team(std::vector<std::fenv_t>& environments, const Set& set) {
  const int threads = static_cast<int>(environments.size()) - 1;
#pragma omp parallel num_threads(threads)
  if (const int me = omp_get_thread_num(); me > 0)
    set(environments[static_cast<std::size_t>(me) + 1]);
}

}  // namespace

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
