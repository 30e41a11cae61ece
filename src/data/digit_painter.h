// Paints one digit.
#pragma once

#include <cstdint>

#include "data/splitmix.h"

namespace tandem::data {

inline constexpr int kDigitSide = 28;  // pixels

// Paints `digit` (0 .. 9) into kDigitSide x kDigitSide pixels: bright strokes on a dark background.
// The writing style, its distortion and the noise are chosen by `random`.
void paint_digit(int digit, SplitMix random, std::uint8_t* pixels);

}  // namespace tandem::data
