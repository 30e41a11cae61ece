// Shared by the kernels of Dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "op/op.h"

namespace tandem {

struct DropoutAttrs {
  double rate = 0.0;
  std::uint64_t seed = 0, number = 0;
  std::uint32_t stream = 0;
  std::int64_t offset = 0;  // the position of the first element in the global batch's tensor
  TANDEM_FIELDS(rate, seed, number, stream, offset)

  // Throws InvalidArgumentError "[op] ..." for an invalid offset.
  void check_offset(std::string_view op) const;
  RandomKey random_key() const { return {.seed = seed, .number = number, .stream = stream}; }
  // A random word below the threshold drops its element; kept elements are scaled. Rates between
  // the two largest thresholds use the largest.
  std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(std::min(std::llround(rate * 0x1p32), 0xffff'ffffll));
  }
  double scale() const { return 1.0 / (1.0 - rate); }
};

extern const OpDef kDropout;
// Attributes with the generator's next random key, for a tensor whose first axis is the batch.
DropoutAttrs next_dropout(double rate, const Shape& shape);

}  // namespace tandem
