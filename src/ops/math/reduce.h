// Attributes and shape rules of reductions.
#pragma once

#include "op/op.h"
#include "tandem/math.h"

namespace tandem {

struct ReduceAttrs {
  Dims axes;         // as given by the caller
  bool all = false;  // every axis; `axes` is empty
  bool keepdims = false;
  TANDEM_FIELDS(axes, all, keepdims)

  static ReduceAttrs of(const ReduceOptions& options) {
    return {options.axis.value_or(Dims()), !options.axis.has_value(), options.keepdims};
  }
};

// ArgMax, ArgMin.
struct AxisAttrs {
  std::int64_t axis = 0;
  TANDEM_FIELDS(axis)
};

// Argsort, of the last axis.
struct ArgsortAttrs {
  bool descending = false;
  TANDEM_FIELDS(descending)
};

struct CumsumAttrs {
  std::int64_t axis = 0;
  bool reverse = false;  // sums from the end
  TANDEM_FIELDS(axis, reverse)
};

// Converts `axis`, which may be negative, to 0 .. rank-1. Throws InvalidArgumentError "[op]
// expected an axis in [-2, 2), got 2".
int resolve_axis(std::string_view op, std::int64_t axis, int rank);
// The reduced axes of a tensor of that rank (bit i for axis i). Throws InvalidArgumentError for an
// axis that is out of range or given twice.
std::uint32_t reduced_axes(std::string_view op, const ReduceAttrs& attrs, int rank);
// The shape of the result.
Shape reduced_shape(const Shape& shape, std::uint32_t mask, bool keepdims);
// The same for a shape that may be unknown. Throws as reduced_axes().
Shape reduced_shape(std::string_view op, const ReduceAttrs& attrs, const Shape& shape);

// For gradients of reductions of input 0. `y` (the result or its gradient) with the reduced axes
// restored as axes of size 1:
Tensor with_reduced_axes(const GradContext& c, const Tensor& y);
// `y`, in a dtype that represents large counts, divided by the number of elements per result:
Tensor per_reduced_element(const GradContext& c, const Tensor& y);

// The dtype for squares and sums: float32 for 16-bit dtypes, which would overflow.
inline DType wide_dtype(DType dtype) { return size_of(dtype) == 2 ? float32 : dtype; }

// (x - mean) * scale in x's dtype. The mean and the scale have one shape, which broadcasts to x's,
// and wide_dtype(). Computed in that dtype.
Tensor scaled_distance(const Tensor& x, const Tensor& mean, const Tensor& scale);

// x * scale in x's dtype. The scale has wide_dtype() and a shape that broadcasts to x's. Computed
// in that dtype.
Tensor scaled(const Tensor& x, const Tensor& scale);

extern const OpDef kArgMax, kArgMin, kArgsort, kCumsum, kVariance, kScaledDistance;
// The result has wide_dtype().
extern const OpDef kEuclideanNorm;

}  // namespace tandem
