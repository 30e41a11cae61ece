// The arithmetic of reductions.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace tandem {

// How the elements of several ranks are added up. kInOrder: ((0 + 1) + 2) + ...; kHalves: the first
// half and the second half of the ranks in order, then the two, as in a two-level hierarchy.
enum class CombineOrder { kInOrder, kHalves };

// Combines `count` elements of each of `inputs`, in their order, and writes the result over each of
// `outputs`: plain memory that this thread can reach. An output may be an input. float16 and
// bfloat16 are combined in float32, integers in int64, where sums and products wrap around. A
// minimum or maximum with a NaN in it is NaN, as in torch.minimum and tf.minimum, whichever input
// has it. A mean of integers is rounded towards zero. kTreeSum has an order of its own, and each of
// its sums is rounded to `dtype`. Throws InvalidArgumentError for bool.
void combine(std::span<const void* const> inputs, std::span<void* const> outputs,
             std::int64_t count, DType dtype, ReduceOp op, CombineOrder order);

// What makes a mean of a sum: divides in place; float16 and bfloat16 in float32.
void divide(void* data, std::int64_t count, DType dtype, int by);

}  // namespace tandem
