// What the operations that only rearrange elements copy, from input 0 to output 0, for the kernels
// of every device. REQUIRES: an output that is not empty.
#pragma once

#include "op/op.h"
#include "ops/array/strided_copy.h"

namespace tandem {

StridedCopy transpose_copy(const KernelContext& c);
StridedCopy broadcast_to_copy(const KernelContext& c);
StridedCopy tile_copy(const KernelContext& c);
StridedCopy reverse_copy(const KernelContext& c);
StridedCopy slice_copy(const KernelContext& c);

// Joining and taking apart: the whole tensor as so many rows, of which each part has a run, in
// order.
std::int64_t rows_of_join(const KernelContext& c);    // ConcatV2, Pack
std::int64_t rows_of_split(const KernelContext& c);   // SplitV
std::int64_t rows_of_unpack(const KernelContext& c);  // Unpack

}  // namespace tandem
