// Whether float32 may be computed in TF32, with a mantissa of 10 bits: as TANDEM_ALLOW_TF32 says,
// and where it does not, convolutions may and products may not, as in PyTorch.
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
