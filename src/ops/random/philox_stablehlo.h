// Random words in StableHLO: the same bits as fill_words() (ops/random/words.h).
#pragma once

#include "graph/stablehlo/expression.h"
#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {

// 64-bit unsigned scalars and arrays.
Value low_half(Builder& build, const Value& wide);   // as 32-bit unsigned
Value high_half(Builder& build, const Value& wide);  // as 32-bit unsigned

// Words of `blocks` blocks from block `first` (a 64-bit unsigned scalar) on: 32-bit unsigned
// [blocks, 4, 16], which is block, row, column.
Value random_words(Builder& build, const KeyValues& key, const Value& first, std::int64_t blocks);

}  // namespace tandem::stablehlo
