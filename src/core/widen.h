// Conversion of arrays between 16-bit floating-point types and float, by the processor's
// instructions where it has them. Loops that convert element by element cannot use these for Half,
// because compilers do not vectorise with them.
#pragma once

#include <cstdint>

#include "tandem/dtype.h"

namespace tandem {

void widen(const Half* from, float* to, std::int64_t count);
void widen(const BFloat16* from, float* to, std::int64_t count);
// Rounds as the constructors of Half and BFloat16 do; NaN may keep other bits.
void narrow(const float* from, Half* to, std::int64_t count);
void narrow(const float* from, BFloat16* to, std::int64_t count);

}  // namespace tandem
