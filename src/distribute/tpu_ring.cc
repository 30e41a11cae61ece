#include "distribute/tpu_ring.h"

#include <algorithm>

#include "core/log.h"

namespace tandem::distribute {
namespace {

using Chip = std::array<int, 3>;

// The ring through a plane of two axes with even sizes, without its first chip: rows in turn to the
// right and to the left, all but their first chip, and then the first chips back.
//
//    0 -- 1 -- 2 -- 3
//    |              |
//   15    6 -- 5 -- 4
//    |    |
//   14    7 -- 8 -- 9
//    |              |
//   13 --12 --11 --10
std::vector<std::array<int, 2>> open_ring(int columns, int rows) {
  std::vector<std::array<int, 2>> ring;
  for (int row = 0; row < rows; ++row)
    for (int i = 1; i < columns; ++i) ring.push_back({row % 2 == 0 ? i : columns - i, row});
  for (int row = rows - 1; row > 0; --row) ring.push_back({0, row});
  return ring;
}

std::vector<Chip> row_major(const Chip& mesh) {
  std::vector<Chip> chips;
  for (int z = 0; z < mesh[2]; ++z)
    for (int y = 0; y < mesh[1]; ++y)
      for (int x = 0; x < mesh[0]; ++x) chips.push_back({x, y, z});
  return chips;
}

}  // namespace

std::vector<Chip> ring_order(const Chip& mesh) {
  std::vector<std::size_t> axes;  // with several chips
  for (std::size_t axis = 0; axis < mesh.size(); ++axis)
    if (mesh[axis] > 1) axes.push_back(axis);
  if (axes.size() < 2) return row_major(mesh);
  if (std::any_of(axes.begin(), axes.end(), [&](auto axis) { return mesh[axis] % 2 != 0; })) {
    logging::warn("Odd dimension");
    return row_major(mesh);
  }

  // The ring of the first plane, then of the others back and forth, and back along the first chips.
  std::vector<Chip> ring = {Chip{}};
  const auto plane = open_ring(mesh[axes[0]], mesh[axes[1]]);
  const int planes = axes.size() == 3 ? mesh[2] : 1;
  for (int z = 0; z < planes; ++z)
    for (std::size_t i = 0; i < plane.size(); ++i) {
      const auto& [column, row] = plane[z % 2 == 0 ? i : plane.size() - 1 - i];
      Chip& chip = ring.emplace_back();
      chip[2] = z;
      chip[axes[0]] = column;
      chip[axes[1]] = row;
    }
  for (int z = planes - 1; z > 0; --z) ring.push_back({0, 0, z});
  return ring;
}

}  // namespace tandem::distribute
