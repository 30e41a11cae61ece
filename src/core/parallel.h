// Parallel loops over the calling thread's team. The team size is a property of the calling thread:
// each replica thread and device stream gets a share of the cores (ThreadBudget), so R replicas on
// C cores use C / R threads each.
//
// The loops run on OpenMP, the thread pool that oneDNN uses, so that the two do not compete.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "core/available_cores.h"

#if defined(__SANITIZE_THREAD__)
#include <thread>
#endif

namespace tandem {

// The number of threads of the calling thread's parallel loops.
int intra_op_threads();

// Whether the calling thread's loops and oneDNN's have teams of `threads`, and its floating-point
// exceptions do not trap, without a ThreadBudget.
bool may_compute(int threads);

// Sets the calling thread's team size during its lifetime: at most `threads`, and no more than
// OpenMP is sure to give. For one thread. The thread and its team have no floating-point traps
// meanwhile: vector loops compute elements that they do not select, and padding. Afterwards OpenMP
// and the threads have the host's settings again.
class ThreadBudget {
 public:
  explicit ThreadBudget(int threads);
  ~ThreadBudget();
  ThreadBudget(const ThreadBudget&) = delete;
  ThreadBudget& operator=(const ThreadBudget&) = delete;

 private:
  int previous_;
  int omp_threads_;
  bool omp_dynamic_;
  // With traps: the host's of the calling thread, then of each thread of its team.
  std::vector<std::fenv_t> host_;
};

// Keeps the first exception of a loop's threads, since exceptions must not leave an OpenMP region.
class LoopError {
 public:
  // Call it in a catch block, with the begin of the thread's range.
  void keep(std::int64_t begin);
  // Throws the exception of the lowest range, if there is any.
  void rethrow() const {
    if (error_) [[unlikely]]
      std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t begin_ = 0;
};

// Calls body(begin, end) on disjoint ranges that cover [0, count), in parallel if each thread gets
// at least `grain` elements. The ranges depend only on `count`, `grain` and the team size. If the
// body throws, the other ranges still run, and the exception of the lowest range is rethrown. A
// body that processes its range in order thus reports the first error, whatever the number of
// threads.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  const std::int64_t threads = std::min<std::int64_t>(
      intra_op_threads(), std::max<std::int64_t>(1, count / std::max<std::int64_t>(grain, 1)));
  if (threads <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  LoopError error;
  const auto guarded = [&](std::int64_t begin, std::int64_t end) {
    try {
      body(begin, end);
    } catch (...) {
      error.keep(begin);
    }
  };
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not see the forks and joins of the OpenMP runtime, which is not
  // instrumented. Plain threads let it find real races.
  std::vector<std::thread> team;
  for (std::int64_t me = 1; me < threads; ++me)
    team.emplace_back([&, me] { guarded(count * me / threads, count * (me + 1) / threads); });
  guarded(std::int64_t{0}, count / threads);
  for (std::thread& thread : team) thread.join();
#else
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const std::int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t begin = count * me / team, end = count * (me + 1) / team;
    if (begin < end) guarded(begin, end);
  }
#endif
  error.rethrow();
}

}  // namespace tandem
