// Reference implementations of operations that move elements.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/tensor.h"

namespace tandem::testing {

using Index = std::vector<std::int64_t>;

inline std::int64_t flatten(const Index& index, const Shape& shape) {
  std::int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    flat = flat * shape[axis] + index[static_cast<std::size_t>(axis)];
  return flat;
}

inline Index unflatten(std::int64_t flat, const Shape& shape) {
  Index index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

// 0, 1, 2, ... of int32.
inline Tensor iota(const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0);
  return constant(values, {.shape = shape});
}

// Expects `result` to have `shape`, and at each index the element of iota() at the flat position
// source(index); `outside` if the position is negative.
inline void expect_moved(const Tensor& result, const Shape& shape,
                         const std::function<std::int64_t(const Index&)>& source,
                         std::int32_t outside = 0) {
  ASSERT_EQ(result.shape(), shape);
  const auto values = result.to_vector<std::int32_t>();
  for (std::int64_t i = 0; i < shape.num_elements(); ++i) {
    const std::int64_t from = source(unflatten(i, shape));
    ASSERT_EQ(values[static_cast<std::size_t>(i)],
              from < 0 ? outside : static_cast<std::int32_t>(from))
        << "at " << i << " of " << shape.to_string();
  }
}

// Distinct floating-point elements in [-1, 1).
inline Tensor wiggly(const Shape& shape, DType dtype = float64) {
  std::vector<double> values(static_cast<std::size_t>(shape.num_elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i * 37 + 11) % 101) / 50.5 - 1.0;
  return constant(values, {.dtype = dtype, .shape = shape});
}

}  // namespace tandem::testing
