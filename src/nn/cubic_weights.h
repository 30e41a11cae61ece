// Weights of cubic interpolation.
#pragma once

#include <vector>

#include "tandem/tensor.h"

namespace tandem::nn {

// Those of Keys's kernel with a = -0.75 at distances 1 + t, t, 1 - t and 2 - t.
std::vector<Tensor> cubic_weights(const Tensor& t);

}  // namespace tandem::nn
