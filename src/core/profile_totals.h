// Totals of a profile's events by name and device.
#pragma once

#include <vector>

#include "core/profile_contents.h"
#include "tandem/profiler.h"

namespace tandem::profile {

// In the order of profiler::Summary::totals.
std::vector<profiler::OperationTotal> totals_of(const TraceContents& contents);

}  // namespace tandem::profile
