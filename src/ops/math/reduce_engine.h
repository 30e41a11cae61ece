// Reductions over any axes, given the loops of one operation on one element type.
//
// Elements are combined in blocks of a size that depends on the shape alone, and the blocks'
// results pairwise: the same bits for any number of threads, and rounding errors that grow with the
// logarithm of the number of blocks.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem {

// Accumulators are of the type that the arithmetic is done in.
struct ReduceLoops {
  // accumulators[r] = all of x[r * length], ..., x[(r + 1) * length - 1], for each of `runs` runs.
  void (*runs)(const void* x, std::int64_t runs, std::int64_t length, void* accumulators);
  // Combines x[r * stride + c], for each of `rows` rows, into accumulators[c]; `fresh`: which start
  // from the neutral element, not from what they hold.
  void (*rows)(const void* x, std::int64_t rows, std::int64_t stride, std::int64_t columns,
               bool fresh, void* accumulators);
  void (*combine)(void* accumulators, const void* others, std::int64_t count);
  // `reduced`: how many elements went into each accumulator.
  void (*finish)(const void* accumulators, std::int64_t count, std::int64_t reduced, void* out);
  std::int64_t input_size;  // bytes an element
  std::int64_t accumulator_size;
  std::int64_t output_size;
};

// Reduces the context's input over the axes of `mask` (bit i: axis i) into its output.
void run_reduce(KernelContext& c, std::uint32_t mask, const ReduceLoops& loops);

}  // namespace tandem
