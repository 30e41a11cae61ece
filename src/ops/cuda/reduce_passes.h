// Plans a reduction as a sequence of passes over a tensor. The plan depends only on the shape.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/shape.h"

namespace tandem::cuda {

inline constexpr int kTile = 32;  // columns per block

// A pass reduces [outer, length, inner] to [outer, pieces, inner]. Each piece has `piece` elements;
// the last one may have fewer.
struct ReducePass {
  std::int64_t outer, length, inner, piece, pieces;
  bool first = false;        // reads elements of the tensor, not partial results
  bool last = false;         // writes elements of the result
  std::int64_t reduced = 0;  // elements per result, over all passes
};

// Adjacent axes that are all reduced or all kept.
struct AxisGroup {
  std::int64_t size;
  bool reduced;
};
// The groups of a shape's axes; bit i of `mask` is set if axis i is reduced. Has at least one
// reduced group.
std::vector<AxisGroup> axis_groups(const Shape& shape, std::uint32_t mask);
// The pass over the last remaining reduced group. Updates `groups` to the pass's result.
ReducePass next_pass(std::vector<AxisGroup>& groups);

}  // namespace tandem::cuda
