// Shared by the kernels of Dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "op/op.h"
#include "ops/nn/dropout_words.h"

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

struct DropoutGradAttrs {
  double rate = 0.0;
  std::int64_t skipped = 0;  // elements of the first block that precede the tensor's
  TANDEM_FIELDS(rate, skipped)

  double scale() const { return 1.0 / (1.0 - rate); }
};

// The blocks of random words (dropout_words.h) of a tensor. The mask has a bit per element of each
// block, which is set if the element is kept.
struct DropoutBlocks {
  std::int64_t first;    // block
  std::int64_t skipped;  // its elements that precede the tensor's
  std::int64_t count;

  DropoutBlocks(std::int64_t offset, std::int64_t size)
      : first(offset / kDropoutBlock),
        skipped(offset % kDropoutBlock),
        count(size == 0 ? 0 : (skipped + size + kDropoutBlock - 1) / kDropoutBlock) {}
};

extern const OpDef kDropout, kDropoutGrad;
// Attributes with the generator's next random key, for a tensor whose first axis is the batch.
DropoutAttrs next_dropout(double rate, const Shape& shape);
// Drops elements of x.
Tensor run_dropout(const Tensor& x, const DropoutAttrs& attrs);

}  // namespace tandem
