// Copying elements into and out of communication buffers, with a scale and a conversion.
#pragma once

#include <cstdint>

#include "tandem/dtype.h"

namespace tandem {

// Copies `count` elements times `scale`, in host-accessible memory; `to` may be `from`. The dtypes
// are equal or both floating. float16 and bfloat16 are scaled in float32. Integers are scaled in
// float64 and truncated.
void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count,
                 double scale);

}  // namespace tandem
