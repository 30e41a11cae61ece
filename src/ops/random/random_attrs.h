// The attributes of the operations of random.cc.
#pragma once

#include <cmath>

#include "op/op.h"
#include "ops/random/units.h"

namespace tandem {

struct RandomAttrs {
  Shape shape;
  DType dtype = float32;
  double a = 0.0;                   // mean, low or probability
  double b = 0.0;                   // stddev or high
  std::uint64_t low = 0, high = 0;  // of integers, which wrap; never sizes
  std::uint64_t seed = 0, number = 0;
  std::uint32_t stream = 0;
  TANDEM_FIELDS(shape, dtype, a, b, low, high, seed, number, stream)

  RandomKey random_key() const { return {.seed = seed, .number = number, .stream = stream}; }
  Ones ones() const { return Ones(static_cast<std::uint64_t>(std::round(a * 0x1p32))); }
  // The number of integers in [low, high).
  std::uint64_t integers() const { return high - low; }
};

// The largest element that RandomUniform generates: the last one below `b`, or `b` if the range is
// empty.
double largest_uniform(const RandomAttrs& attrs);

}  // namespace tandem
