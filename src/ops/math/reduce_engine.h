// Reductions over any axes, for the loops of one operation on one element type.
//
// Elements are combined in blocks whose size depends only on the shape, and the results of the
// blocks pairwise. So the result does not depend on the number of threads, and rounding errors grow
// with the logarithm of the number of blocks.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem {

// The most columns per call of a loop, and the most bytes per accumulator.
inline constexpr std::int64_t kReduceColumns = 512;
inline constexpr std::int64_t kMaxAccumulator = 24;

struct ReduceLoops {
  // Reduces each of `runs` contiguous runs: accumulators[r] = x[r * length], ...,
  // x[(r + 1) * length - 1] combined.
  void (*runs)(const void* x, std::int64_t runs, std::int64_t length, void* accumulators);
  // Combines x[r * stride + c] of each of `rows` rows into accumulators[c]. If `fresh`, the
  // accumulators are first set to the neutral element. At most kReduceColumns columns.
  void (*rows)(const void* x, std::int64_t rows, std::int64_t stride, std::int64_t columns,
               bool fresh, void* accumulators);
  void (*combine)(void* accumulators, const void* others, std::int64_t count);
  // Converts accumulators to results. `reduced` is the number of elements in each accumulator.
  void (*finish)(const void* accumulators, std::int64_t count, std::int64_t reduced, void* out);
  std::int64_t input_size;  // bytes per element
  std::int64_t accumulator_size;
  std::int64_t output_size;  // bytes per result
};

// Reduces the context's input over the axes of `mask` (bit i for axis i) into `out`, a result per
// element of output 0.
void run_reduce(KernelContext& c, std::uint32_t mask, const ReduceLoops& loops, void* out);

}  // namespace tandem
