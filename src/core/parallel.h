// Loops spread over the calling thread's team. The team's size belongs to the thread that runs the
// loop: each replica thread and each device stream gets its share of the cores (ThreadBudget), so
// that R replicas on C cores run C / R threads each.
//
// The loops run on OpenMP, the same pool that oneDNN uses, so that the two never compete.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

#if defined(__SANITIZE_THREAD__)
#include <thread>
#include <vector>
#endif

namespace tandem {

// Cores that this process may use (its affinity mask and OMP_NUM_THREADS), at least 1.
int available_cores();

// How many threads a parallel loop of the calling thread uses.
int intra_op_threads();

// Sets the calling thread's team size while it lives. Not thread-safe; belongs to one thread.
class ThreadBudget {
 public:
  explicit ThreadBudget(int threads);
  ~ThreadBudget();
  ThreadBudget(const ThreadBudget&) = delete;
  ThreadBudget& operator=(const ThreadBudget&) = delete;

 private:
  int previous_;
};

// Keeps the first exception of a loop's threads: an exception must not leave an OpenMP region.
class LoopError {
 public:
  // In a catch block of the thread whose range begins there.
  void keep(std::int64_t begin);
  // Throws what was kept of the lowest range, if anything was.
  void rethrow() const {
    if (error_) [[unlikely]]
      std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t begin_ = 0;
};

// Calls body(begin, end) over disjoint ranges that cover [0, count), side by side when there are at
// least `grain` elements for each thread. The ranges depend on `count`, `grain` and the team's size
// alone. When the body throws, the other ranges are done nevertheless, and the exception of the
// lowest range that threw one comes out: a body that goes through its range in order thus tells of
// the first place that is wrong, however many threads there are.
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
  // The sanitizer sees neither the forks and joins of the OpenMP runtime, which is not
  // instrumented, nor how the compiler hands variables to its threads: threads of our own, so that
  // it sees races.
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
