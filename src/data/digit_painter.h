// Paints one digit.
#pragma once

#include <cstdint>

#include "data/splitmix.h"

namespace tandem::data {

inline constexpr int kDigitSide = 28;  // pixels

// Draws `digit` (0 .. 9) as one of its writing styles, with everything about the writing drawn from
// `random`, into kDigitSide x kDigitSide pixels: bright strokes on a dark ground.
void paint_digit(int digit, SplitMix random, std::uint8_t* pixels);

}  // namespace tandem::data
