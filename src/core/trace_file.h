// Profiles as files in the Trace Event Format (JSON object format, complete events), which Chrome
// defines: "Trace Event Format", Google, 2016.
#pragma once

#include "core/atomic_file.h"
#include "core/profile_contents.h"

namespace tandem::profile {

// Writes a process per device, the host first, with a row for each lane and replica: threads that
// do the same one after the other share a row, those that overlap have several. Throws what
// AtomicFile::write() does.
void write_trace(AtomicFile& out, const TraceContents& contents);

}  // namespace tandem::profile
