// How a reduction goes over a tensor, as the shape alone decides.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/shape.h"

namespace tandem::cuda {

inline constexpr int kTile = 32;  // columns of a block

// What a pass reduces: [outer, length, inner] to [outer, pieces, inner], each piece of `piece`
// elements but the last.
struct ReducePass {
  std::int64_t outer, length, inner, piece, pieces;
  bool first = false;        // of the elements themselves: they are loaded
  bool last = false;         // its results are elements
  std::int64_t reduced = 0;  // in all
};

// Neighbouring axes that are all reduced, or all kept.
struct AxisGroup {
  std::int64_t size;
  bool reduced;
};
// The groups of a shape's axes; `mask`: bit i for axis i. At least one is reduced.
std::vector<AxisGroup> axis_groups(const Shape& shape, std::uint32_t mask);
// The pass over the last reduced group that is left, which it takes out.
ReducePass next_pass(std::vector<AxisGroup>& groups);

}  // namespace tandem::cuda
