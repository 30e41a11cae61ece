// The operation behind sum_to_shape where the axes to sum over are known only when a graph runs.
#pragma once

#include "op/op.h"

namespace tandem {

struct SumToShapeAttrs {
  Shape shape;  // of the result; it broadcasts to the input's
  TANDEM_FIELDS(shape)
};

extern const OpDef kSumToShape;

}  // namespace tandem
