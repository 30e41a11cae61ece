// The operation that sum_to_shape() uses if the axes to sum over are known only when a graph runs.
#pragma once

#include "op/op.h"

namespace tandem {

struct SumToShapeAttrs {
  Shape shape;  // the result's; it broadcasts to the input's shape
  TANDEM_FIELDS(shape)
};

extern const OpDef kSumToShape;

}  // namespace tandem
