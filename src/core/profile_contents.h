// The events of a profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/profile.h"

namespace tandem::profile {

// Events of one thread, in the order of their ends.
struct ThreadEvents {
  int thread = 0;  // numbered by the threads' first events
  const Event* events = nullptr;
  std::size_t count = 0;
};

struct TraceContents {
  std::vector<ThreadEvents> threads;
  std::int64_t start = 0;  // start of the profile: time 0 of the file
  std::int64_t dropped = 0;
};

}  // namespace tandem::profile
