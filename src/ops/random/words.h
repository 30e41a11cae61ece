// Blocks of random words, the input of distributions.
#pragma once

#include "ops/random/philox.h"

namespace tandem {

inline constexpr int kColumns = 16;
// Row r, column j of block b is word r of counter 16 b + j.
using Words = std::uint32_t[4][kColumns];

void fill_words(const RandomKey& random_key, std::int64_t block, Words& words);

}  // namespace tandem
