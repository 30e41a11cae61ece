// Axes of shapes, in the types of StableHLO's attributes.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/shape.h"

namespace tandem::stablehlo {

using Axes = std::vector<std::int64_t>;

// The shape without `axes`, and with sizes of 1 there.
Shape without(const Shape& shape, const Axes& axes);
Shape with_ones(const Shape& shape, const Axes& axes);
// The shape of `count` values of `shape`, stacked along a new first axis.
Shape stacked(std::int64_t count, const Shape& shape);
// The axes of a shape that are not among `axes`.
Axes other_axes(const Shape& shape, const Axes& axes);
Axes all_axes(const Shape& shape);

}  // namespace tandem::stablehlo
