// Attributes of the operations that create tensors.
#pragma once

#include <cstdint>

#include "op/fields.h"
#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem {

struct FillAttrs {
  Shape shape;
  double value = 0.0;
  DType dtype = float32;
  TANDEM_FIELDS(shape, value, dtype)
};

struct ElementCountAttrs {
  Shape sizes;
  DType dtype = float32;
  TANDEM_FIELDS(sizes, dtype)
};

struct SequenceAttrs {
  double start = 0.0;
  double step = 1.0;  // Range
  double last = 0.0;  // LinSpace: the exact last element
  std::int64_t count = 0;
  DType dtype = float32;
  TANDEM_FIELDS(start, step, last, count, dtype)

  // `count` may be known only when a graph runs.
  double linspace_step() const {
    return count > 1 ? (last - start) / static_cast<double>(count - 1) : 0.0;
  }
};

struct EyeAttrs {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = float32;
  TANDEM_FIELDS(rows, columns, dtype)
};

}  // namespace tandem
