// The operation behind sum_to_shape where the axes to sum over are known only when a graph runs.
#pragma once

#include "op/op.h"

namespace tandem {

struct SumToShapeAttrs {
  Shape shape;  // of the result; it broadcasts to the input's
  template <class F>
  void fields(F&& f) const {
    f("shape", shape);
  }
};

extern const OpDef kSumToShape;

}  // namespace tandem
