// The random words that decide which elements Dropout keeps.
#pragma once

#include "ops/random/words.h"

namespace tandem {

// The element at position p of the global tensor uses the random word in row (p % block) / kColumns
// and column p % kColumns of block p / block.
inline constexpr std::int64_t kDropoutBlock = 4 * kColumns;
static_assert(kDropoutBlock == 64);  // a mask has an int64 per block

}  // namespace tandem
