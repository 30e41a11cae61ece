// Matrix products in StableHLO.
#include <algorithm>

#include "ops/lowering_list.h"
#include "ops/math/matmul_attrs.h"

namespace tandem::stablehlo {
namespace {

// `x` with leading axes that are repeated as in `shape`, the shape of the result.
Value with_batch(Context& c, const Value& x, const Shape& shape) {
  Shape wanted = shape;
  for (int i = 1; i <= 2; ++i) wanted.set(shape.rank() - i, x.shape().word(x.rank() - i));
  return c.build.broadcast_to(x, wanted);
}

void lower_matmul(Context& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  const Value a = with_batch(c, c.input(0), c.output().shape);
  const Value b = with_batch(c, c.input(1), c.output().shape);
  const std::int64_t last = a.rank() - 1;
  DotAxes axes{.contracted_a = {attrs.transpose_a ? last - 1 : last},
               .contracted_b = {attrs.transpose_b ? last : last - 1}};
  for (std::int64_t axis = 0; axis < last - 1; ++axis) {
    axes.batch_a.push_back(axis);
    axes.batch_b.push_back(axis);
  }
  c.result(c.build.dot(a, b, axes, element_of(c.output().dtype)));
}

constexpr Lowering kMatmulLowerings[] = {
    {"BatchMatMulV2", lower_matmul},
    {"MatMul", lower_matmul},
};

}  // namespace

LoweringList matmul_lowerings() { return kMatmulLowerings; }

}  // namespace tandem::stablehlo
