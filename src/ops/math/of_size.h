// Checks of sizes, for functions that are made of operations.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dim.h"
#include "tandem/tensor.h"

namespace tandem {

// x. If it is not known before the graph runs whether it has this shape, each run checks it: the
// error is "[what] expected WANTED (5, 3), got shape (1, 3)".
// REQUIRES: it may have this shape.
Tensor of_shape(std::string_view what, std::string_view wanted, const Tensor& x,
                const Shape& shape);

// The same for the size of an axis.
inline Tensor of_size(std::string_view what, std::string_view wanted, const Tensor& x,
                      std::int64_t axis, dim::Word size) {
  if (x.size_word(axis) == size) return x;
  Shape shape = x.shape();
  shape.set(static_cast<int>(axis < 0 ? axis + x.rank() : axis), size.number);
  return of_shape(what, wanted, x, shape);
}

// The same for a least size: REQUIRES: the axis may be as long.
inline Tensor of_least_size(std::string_view what, std::string_view wanted, const Tensor& x,
                            std::int64_t axis, dim::Word size) {
  return of_size(what, wanted, x, axis, dim::max(size, x.size_word(axis)));
}

}  // namespace tandem
