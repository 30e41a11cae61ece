// Reductions in StableHLO. Sums of 16-bit elements are computed in float32, as in the kernels.
#include "ops/lowering_support.h"
#include "ops/math/broadcast.h"
#include "ops/math/reduce.h"

namespace tandem::stablehlo {
namespace {

Axes axes_of_mask(std::uint32_t mask, int rank) {
  Axes axes;
  for (int axis = 0; axis < rank; ++axis)
    if ((mask >> axis & 1u) != 0) axes.push_back(axis);
  return axes;
}

Axes axes_of(const Context& c) {
  const int rank = c.input(0).rank();
  return axes_of_mask(reduced_axes(c.op(), c.attrs<ReduceAttrs>(), rank), rank);
}

std::int64_t elements_along(const Shape& shape, const Axes& axes) {
  std::int64_t count = 1;
  for (const std::int64_t axis : axes)
    count = dim::product(count, shape.word(static_cast<int>(axis)));
  return count;
}

void lower_sum(Context& c) { finish(c, c.build.sum(c.input(0), axes_of(c))); }

void lower_mean(Context& c) {
  const Axes axes = axes_of(c);
  const Expression sum(c.build, c.build.sum(c.input(0), axes));
  finish(c, sum / sum.size(elements_along(c.input(0).shape(), axes)));
}

void lower_norm(Context& c) { finish(c, sqrt(square(widened(c, 0)).sum(axes_of(c)))); }

void lower_prod(Context& c) {
  Value x = c.input(0);
  if (is_floating(x.element()) && bits_of(x.element()) == 16) x = c.build.convert(x, Element::kF32);
  const Value one = c.build.constant(1.0, {x.element(), Shape::scalar()});
  finish(c, c.build.reduce("multiply", x, one, axes_of(c)));
}

void lower_max(Context& c) {
  const Value& x = c.input(0);
  finish(c, c.build.reduce("maximum", x, bound(c.build, x.element(), false), axes_of(c)));
}
void lower_min(Context& c) {
  const Value& x = c.input(0);
  finish(c, c.build.reduce("minimum", x, bound(c.build, x.element(), true), axes_of(c)));
}
void lower_any(Context& c) {
  const Value none = c.build.constant(0.0, {Element::kBool, Shape::scalar()});
  finish(c, c.build.reduce("or", c.input(0), none, axes_of(c)));
}
void lower_all(Context& c) {
  const Value all = c.build.constant(1.0, {Element::kBool, Shape::scalar()});
  finish(c, c.build.reduce("and", c.input(0), all, axes_of(c)));
}

void lower_sum_to_shape(Context& c) {
  const Shape &shape = c.input(0).shape(), &to = c.output().shape;
  for (int axis = 0; axis < to.rank(); ++axis)  // whether it is repeated has to be known
    if (to.word(axis) != shape.word(shape.rank() - to.rank() + axis))
      dim::known(c.op(), to.word(axis), "its lowering");
  const Axes axes = axes_of_mask(repeated_axes(shape, c.output().shape), shape.rank());
  finish(c, c.build.sum(c.input(0), axes));
}

constexpr Lowering kReduceLowerings[] = {
    {"All", lower_all},   {"Any", lower_any},   {"EuclideanNorm", lower_norm},
    {"Max", lower_max},   {"Mean", lower_mean}, {"Min", lower_min},
    {"Prod", lower_prod}, {"Sum", lower_sum},   {"SumToShape", lower_sum_to_shape},
};

}  // namespace

LoweringList reduce_lowerings() { return kReduceLowerings; }

}  // namespace tandem::stablehlo
