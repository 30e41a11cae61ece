// What the kernels of Dropout share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "op/op.h"
#include "ops/random/words.h"

namespace tandem {

struct DropoutAttrs {
  double rate = 0.0;
  std::uint64_t seed = 0, number = 0;
  std::uint32_t stream = 0;
  std::int64_t offset = 0;  // the position of the first element in the global batch's tensor
  TANDEM_FIELDS(rate, seed, number, stream, offset)

  // Throws InvalidArgumentError in the name of `op`.
  void check_offset(std::string_view op) const;
  RandomKey random_key() const { return {.seed = seed, .number = number, .stream = stream}; }
  // Words below it drop an element; what is kept is scaled. The rates between the last two
  // thresholds count as the last.
  std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(std::min(std::llround(rate * 0x1p32), 0xffff'ffffll));
  }
  double scale() const { return 1.0 / (1.0 - rate); }
};

// The element at position p of the global tensor takes row (p % block) / kColumns, column
// p % kColumns of the block of random words p / block.
inline constexpr std::int64_t kDropoutBlock = 4 * kColumns;

extern const OpDef kDropout;
// Takes the next random key, for a tensor of this shape whose first axis is the batch.
DropoutAttrs next_dropout(double rate, const Shape& shape);

}  // namespace tandem
