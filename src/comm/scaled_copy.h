// Copying elements into and out of the buffers that travel.
#pragma once

#include <cstdint>

#include "tandem/dtype.h"

namespace tandem {

// Copies `count` elements, times `scale`, in memory that the host reaches; `to` may be `from`. The
// dtypes are the same or both floating. float16 and bfloat16 are scaled in float32; integers in
// float64, and cut off.
void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count,
                 double scale);

}  // namespace tandem
