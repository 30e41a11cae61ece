// Writes profiles in the Trace Event Format of Chrome (JSON object format, complete events), as in
// "Trace Event Format", Google, 2016.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/atomic_file.h"
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

// Writes one process per device, the host first, with a row for each lane and replica. Threads with
// the same role that do not overlap in time share one row. Throws as AtomicFile::write() does.
void write_trace(AtomicFile& out, const TraceContents& contents);

}  // namespace tandem::profile
