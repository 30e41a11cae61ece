// Floating-point traps, which simulations enable (feenableexcept).
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace tandem {

// Whether floating-point exceptions trap on the calling thread.
inline bool has_float_traps() {
#if defined(__x86_64__)
  return (_mm_getcsr() & _MM_MASK_MASK) != _MM_MASK_MASK;
#else
  return fegetexcept() > 0;
#endif
}

}  // namespace tandem
