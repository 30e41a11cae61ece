// A check of a size, for functions that are made of operations.
#pragma once

#include <cstdint>

#include "core/dim.h"
#include "tandem/array.h"

namespace tandem {

// x. If it is not known before the graph runs whether `axis` has this size, each run checks it.
// REQUIRES: it may have this size.
inline Tensor of_size(const Tensor& x, std::int64_t axis, dim::Word size) {
  if (x.size_word(axis) == size) return x;
  Shape shape = x.shape();
  shape.set(static_cast<int>(axis < 0 ? axis + x.rank() : axis), size.number);
  return ensure_shape(x, shape);
}

}  // namespace tandem
