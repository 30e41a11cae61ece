// Whether float32 may be computed in TF32, which has a mantissa of 10 bits. TANDEM_ALLOW_TF32
// decides. By default, convolutions use it and matrix products do not, as in PyTorch.
#pragma once

#include "core/env.h"

namespace tandem::cuda {

inline bool tf32_products() {
  static const bool allowed = env_bool("TANDEM_ALLOW_TF32").value_or(false);
  return allowed;
}
inline bool tf32_convolutions() {
  static const bool allowed = env_bool("TANDEM_ALLOW_TF32").value_or(true);
  return allowed;
}

}  // namespace tandem::cuda
