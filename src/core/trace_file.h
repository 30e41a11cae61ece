// Writes profiles in the Trace Event Format of Chrome (JSON object format, complete events), as in
// "Trace Event Format", Google, 2016.
#pragma once

#include "core/atomic_file.h"
#include "core/profile_contents.h"

namespace tandem::profile {

// Writes one process per device, the host first, with a row for each lane and replica. Threads with
// the same role that do not overlap in time share one row. Throws as AtomicFile::write() does.
void write_trace(AtomicFile& out, const TraceContents& contents);

}  // namespace tandem::profile
