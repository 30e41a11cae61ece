// The arithmetic of reductions, on host memory.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace tandem {

// The order in which the ranks' elements are summed. kInOrder: ((0 + 1) + 2) + ... kHalves: the
// first half of the ranks in order, the second half in order, then the two sums, as in a two-level
// hierarchy.
enum class CombineOrder { kInOrder, kHalves };

// Reduces `count` elements of `inputs`, in their order, and writes the result to each of `outputs`.
// All are host memory; an output may be an input. float16 and bfloat16 are reduced in float32,
// integers in int64 with wrap-around. Minimum and maximum propagate NaN, as torch.minimum and
// tf.minimum do. The mean of integers rounds towards zero. kTreeSum ignores `order`, and rounds
// each of its sums to `dtype`. Throws InvalidArgumentError for bool.
void combine(std::span<const void* const> inputs, std::span<void* const> outputs,
             std::int64_t count, DType dtype, ReduceOp op, CombineOrder order);

// Divides in place, which turns a sum into a mean. float16 and bfloat16 are divided in float32.
void divide(void* data, std::int64_t count, DType dtype, int by);

}  // namespace tandem
