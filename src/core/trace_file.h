// Profiles as files in the Trace Event Format (JSON object format, complete events), which Chrome
// defines: "Trace Event Format", Google, 2016.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/profile.h"

namespace tandem::profile {

// Some events of one thread, in the order of their ends.
struct ThreadEvents {
  int thread = 0;  // in the order of the threads' first events
  const Event* events = nullptr;
  std::size_t count = 0;
};

struct TraceContents {
  std::vector<ThreadEvents> threads;
  std::int64_t start = 0;  // of the profile: time 0 of the file
  std::int64_t dropped = 0;
};

// Writes a process a device, the host first, with a row for each lane, thread and replica.
void write_trace(std::ostream& out, const TraceContents& contents);

}  // namespace tandem::profile
