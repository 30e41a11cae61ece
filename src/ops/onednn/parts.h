// Products with long sums, divided into parts that depend only on the shape. One thread computes a
// whole part, and the results of the parts are added in order, so that the result does not depend
// on the number of threads. (By itself, oneDNN divides such sums by the number of threads.)
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/parallel.h"
#include "ops/onednn/primitive.h"

namespace tandem::onednn {

// Part i of `size` elements divided into `parts` parts, whose sizes differ by at most 1.
struct PartRange {
  std::int64_t begin, size;
};
inline PartRange part_of(std::int64_t size, int parts, int i) {
  const std::int64_t begin = size * i / parts;
  return {begin, size * (i + 1) / parts - begin};
}

// The largest power of two up to `limit`, at least 1. Powers of two divide evenly over most teams.
inline int parts_up_to(std::int64_t limit) {
  int parts = 1;
  while (2 * parts <= limit) parts *= 2;
  return parts;
}

// A primitive that several threads run concurrently, with one executable per thread.
class TeamExecutable {
 public:
  // `make` creates an executable. It runs with a team of one thread, so that oneDNN does not divide
  // the work.
  template <class Make>
  TeamExecutable(int threads, const Make& make) {
    const ThreadBudget alone(1);
    for (int i = 0; i < threads; ++i) executables_.push_back(make());
  }

  int threads() const { return static_cast<int>(executables_.size()); }
  std::size_t scratchpad_bytes() const { return executables_.front()->scratchpad_bytes(); }
  dnnl_status_t run(int thread, void* scratchpad,
                    std::initializer_list<const void*> addresses) const {
    return executables_[static_cast<std::size_t>(thread)]->run_in(scratchpad, addresses);
  }

 private:
  std::vector<std::unique_ptr<Executable>> executables_;
};

// Calls task(thread, part) for each part, with a team of one. Parts are distributed dynamically, so
// that a descheduled thread does not delay the others. `task` returns oneDNN's status; throws
// InternalError for the first failure.
template <class Task>
void run_parts(int threads, int parts, const Task& task) {
  std::atomic<int> next{0};
  std::atomic<dnnl_status_t> failure{dnnl_success};
  parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadBudget alone(1);
    for (std::int64_t thread = begin; thread < end; ++thread)
      for (int part; (part = next.fetch_add(1, std::memory_order_relaxed)) < parts;)
        if (const dnnl_status_t status = task(static_cast<int>(thread), part);
            status != dnnl_success)
          failure.store(status, std::memory_order_relaxed);
  });
  check(failure.load(std::memory_order_relaxed));
}

// Rounds `bytes` up to a multiple of 64, the alignment that oneDNN prefers for the next array.
inline std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Adds `count` arrays of `size` elements to `sums`, in order. The arrays are contiguous at
// `others`.
void add_parts(float* sums, const float* others, int count, std::int64_t size);

}  // namespace tandem::onednn
