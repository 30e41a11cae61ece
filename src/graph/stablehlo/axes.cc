#include "graph/stablehlo/axes.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace tandem::stablehlo {

Shape without(const Shape& shape, const Axes& axes) {
  Axes kept;
  for (const std::int64_t axis : other_axes(shape, axes))
    kept.push_back(shape.word(static_cast<int>(axis)));
  return Shape(std::span<const std::int64_t>(kept));
}

Shape with_ones(const Shape& shape, const Axes& axes) {
  Shape result = shape;
  for (const std::int64_t axis : axes) result.set(static_cast<int>(axis), 1);
  return result;
}

Shape stacked(std::int64_t count, const Shape& shape) {
  Dims sizes = {count};
  for (const std::int64_t size : shape.words()) sizes.push_back(size);
  return Shape(sizes);
}

Axes other_axes(const Shape& shape, const Axes& axes) {
  Axes others;
  for (std::int64_t axis = 0; axis < shape.rank(); ++axis)
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) others.push_back(axis);
  return others;
}

Axes all_axes(const Shape& shape) {
  Axes axes(static_cast<std::size_t>(shape.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace tandem::stablehlo
