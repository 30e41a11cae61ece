// The moments of a batch, for normalisations that combine those of several batches.
#pragma once

#include "tandem/tensor.h"

namespace tandem {

// Over all axes but the last.
struct BatchMoments {
  Tensor rows;            // how many numbers each moment is of: a float64 scalar
  Tensor mean, variance;  // population variance; both are 0 for no rows
};
// The moments have gradients of any order. The dtype is float32, for float64 data float64. Throws
// InvalidArgumentError unless x is floating and has rank 2 or more.
BatchMoments batch_moments(const Tensor& x);

}  // namespace tandem
