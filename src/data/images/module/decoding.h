// Checks and conversions that both decoders need.
#pragma once

#include "data/images/codec.h"

namespace tandem::data {

// Three channels as one, by Pillow's weights.
Pixels grey_of(const Pixels& colours);

// Throws InvalidArgumentError for an image of too many pixels.
void check_size(const DecodeCall& call, std::uint64_t height, std::uint64_t width);

// Throws DataLossError "[op] name, row R of N: the FORMAT data is broken: REASON".
[[noreturn]] void fail_broken(const DecodeCall& call, const char* format, const char* reason,
                              std::int64_t row, std::int64_t rows);

}  // namespace tandem::data
