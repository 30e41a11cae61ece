// Shared by the kernels that select elements by indices.
#pragma once

#include <cstdint>

#include "op/fields.h"
#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem {

// `shape` as [outer, axis, inner].
struct AxisSplit {
  AxisSplit(const Shape& shape, int at) : size(shape.word(at)) {
    for (int i = 0; i < at; ++i) outer *= shape.word(i);
    for (int i = at + 1; i < shape.rank(); ++i) inner *= shape.word(i);
  }
  std::int64_t outer = 1, size, inner = 1;
};

struct GatherAttrs {
  std::int64_t axis = 0;
  TANDEM_FIELDS(axis)
};

struct GatherGradAttrs {
  std::int64_t axis = 0;
  Shape shape;  // of params
  TANDEM_FIELDS(axis, shape)
};

struct AssignSliceAttrs {
  std::int64_t axis = 0;
  TANDEM_FIELDS(axis)
};

// How ScatterElements combines an element with an update.
struct ScatterElementsAttrs {
  enum Combination : std::int64_t { kReplace, kMultiply, kMax, kMin };
  std::int64_t combination = kReplace;
  TANDEM_FIELDS(combination)
};

struct OneHotAttrs {
  std::int64_t depth = 0;
  double on = 1.0;
  double off = 0.0;
  DType dtype = float32;
  TANDEM_FIELDS(depth, on, off, dtype)
};

}  // namespace tandem
