// The random numbers of one of several workers that iterate over the same pipeline.
#pragma once

#include <cstdint>

#include "data/splitmix.h"

namespace tandem::data {

// The seed on a worker of a transformation for which none was given. Worker 0 has the seeds of a
// single process.
inline std::uint64_t seed_of_worker(std::uint64_t seed, std::uint64_t worker) {
  return worker == 0 ? seed : mix(seed, worker);
}

// Pipelines that this thread makes in the scope have the seeds of a worker.
class WorkerSeedScope {
 public:
  explicit WorkerSeedScope(std::uint64_t worker) : previous_(value()) { value() = worker; }
  ~WorkerSeedScope() { value() = previous_; }
  WorkerSeedScope(const WorkerSeedScope&) = delete;
  WorkerSeedScope& operator=(const WorkerSeedScope&) = delete;

  // The worker whose seeds this thread's pipelines have.
  static std::uint64_t current() { return value(); }

 private:
  static std::uint64_t& value() {
    thread_local std::uint64_t worker = 0;
    return worker;
  }

  std::uint64_t previous_;
};

}  // namespace tandem::data
