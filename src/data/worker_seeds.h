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

}  // namespace tandem::data
