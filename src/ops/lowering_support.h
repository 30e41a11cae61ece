// Shared by the lowerings to StableHLO. As in the kernels, 16-bit elements are computed in float32
// and rounded at the end.
#pragma once

#include "graph/stablehlo/expression.h"
#include "ops/lowering_list.h"

namespace tandem::stablehlo {

inline bool is_narrow(Element element) { return is_floating(element) && bits_of(element) == 16; }
// The element type in which elements are computed.
inline Element compute_element(Element element) {
  return is_narrow(element) ? Element::kF32 : element;
}

inline Expression widened(Context& c, const Value& value) {
  return {c.build, c.build.convert(value, compute_element(value.element()))};
}
inline Expression widened(Context& c, std::size_t input) { return widened(c, c.input(input)); }

// Sets an output: the result in the output's shape, rounded to its element type.
inline void finish(Context& c, std::size_t output, const Value& result) {
  const TensorType& spec = c.output(output);
  c.result(output, c.build.convert(c.build.reshape(result, spec.shape), element_of(spec.dtype)));
}
inline void finish(Context& c, const Value& result) { finish(c, 0, result); }
inline void finish(Context& c, const Expression& result) { finish(c, 0, result.value()); }

// The axes of a shape but the last one.
inline Axes leading_axes(const Shape& shape) {
  Axes axes = all_axes(shape);
  axes.pop_back();
  return axes;
}

}  // namespace tandem::stablehlo
