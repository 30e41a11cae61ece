// Moving elements into and out of the buffers that travel.
#pragma once

#include <cstdint>

#include "hvd/operation.h"

namespace tandem::hvd {

// Copies `count` elements, times `scale`. The dtypes are the same or both floating; integers are
// scaled in float64 and cut off.
void copy_scaled(const HostArray& to, const HostArray& from, std::int64_t count, double scale);

}  // namespace tandem::hvd
