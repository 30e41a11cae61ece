// The order of a mesh's chips in which each is next to the one before, and the last to the first.
#pragma once

#include <array>
#include <vector>

namespace tandem::distribute {

// x, y and z of each chip of a mesh, from chip 0. A mesh of one axis is a line, and one with an odd
// number of chips along an axis has row-major order, x fastest: neither is a ring.
std::vector<std::array<int, 3>> ring_order(const std::array<int, 3>& mesh);

}  // namespace tandem::distribute
