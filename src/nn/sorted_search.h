// Binary search by operations.
#pragma once

#include <cstdint>

#include "tandem/tensor.h"

namespace tandem {

// For each element of x, how many of the `count` elements of `sorted`, a vector in increasing
// order, are at most x: int64, of the shape of x. All of them for NaN. `sorted` has the dtype of x.
Tensor number_at_most(const Tensor& sorted, std::int64_t count, const Tensor& x);

}  // namespace tandem
