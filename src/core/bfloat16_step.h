// Rounding of 32 numbers in registers by the processor's instruction for BFloat16, for loops that
// are compiled for such processors.
#pragma once

#include <cstdint>

#include "tandem/dtype.h"

#if defined(__x86_64__)
#include <immintrin.h>

// Goes into the `target` attribute of functions that call narrow_step().
#define TANDEM_BFLOAT16_ISA "arch=x86-64-v4,avx512bf16"

namespace tandem {

bool has_bfloat16_instructions();

// Rounds 32 numbers as narrow() does, by integer arithmetic.
void narrow_32_exactly(const float* from, BFloat16* to);

// As narrow() of 32 numbers. REQUIRES: has_bfloat16_instructions()
__attribute__((target(TANDEM_BFLOAT16_ISA))) inline void narrow_step(const float* from,
                                                                     BFloat16* to) {
  constexpr int kSubnormal = 0x20;  // the instruction would round these numbers to 0
  const __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
  const int subnormal =
      _mm512_fpclass_ps_mask(low, kSubnormal) | _mm512_fpclass_ps_mask(high, kSubnormal);
  if (subnormal != 0) [[unlikely]]
    return narrow_32_exactly(from, to);
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

}  // namespace tandem
#endif
