// The skeletons of handwritten digits.
#pragma once

#include <span>
#include <vector>

namespace tandem::data {

struct Point {
  float x = 0.0f, y = 0.0f;  // in the digit's box: x points right, y down, both in [0, 1]
};

// One movement of the pen: a smooth curve through the points, or straight lines between them.
struct Stroke {
  bool smooth = true;
  std::vector<Point> points;
};

// One way of writing a digit.
using WritingStyle = std::vector<Stroke>;

// The ways of writing `digit` (0 .. 9).
std::span<const WritingStyle> writing_styles(int digit);

}  // namespace tandem::data
