#include "ops/cuda/reduce_passes.h"

#include <algorithm>

namespace tandem::cuda {
namespace {

// The number of parallel results that keeps a GPU busy, and the least number of elements per piece.
constexpr std::int64_t kEnough = 1024;
constexpr std::int64_t kLeastRow = 4096;
constexpr std::int64_t kLeastColumn = 64;

}  // namespace

std::vector<AxisGroup> axis_groups(const Shape& shape, std::uint32_t mask) {
  std::vector<AxisGroup> groups;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool reduced = (mask >> axis & 1u) != 0;
    if (!groups.empty() && groups.back().reduced == reduced)
      groups.back().size *= shape.word(axis);
    else if (shape.word(axis) != 1)
      groups.push_back({shape.word(axis), reduced});
  }
  if (std::none_of(groups.begin(), groups.end(), [](const auto& group) { return group.reduced; }))
    groups.push_back({1, true});
  return groups;
}

ReducePass next_pass(std::vector<AxisGroup>& groups) {
  auto at = groups.end();
  ReducePass pass{.outer = 1, .length = 0, .inner = 1, .piece = 0, .pieces = 1};
  while (!(--at)->reduced) pass.inner *= at->size;
  for (auto each = groups.begin(); each != at; ++each) pass.outer *= each->size;
  pass.length = at->size;
  const bool rows = pass.inner == 1;
  const std::int64_t least = rows ? kLeastRow : kLeastColumn;
  const std::int64_t beside = pass.outer * (rows ? 1 : (pass.inner + kTile - 1) / kTile);
  if (beside < kEnough)
    pass.pieces = std::clamp<std::int64_t>(pass.length / least, 1, kEnough / beside);
  pass.piece = (pass.length + pass.pieces - 1) / pass.pieces;
  if (pass.pieces > 1) {
    pass.pieces = (pass.length + pass.piece - 1) / pass.piece;
    at->size = pass.pieces;  // reduced by the next pass
  } else {
    at->size = 1;
    at->reduced = false;
  }
  return pass;
}

}  // namespace tandem::cuda
