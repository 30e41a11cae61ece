// The copies that operations which only rearrange elements make from input 0 to output 0, for the
// kernels of all devices. REQUIRES: the output is not empty.
#pragma once

#include "op/op.h"
#include "ops/array/strided_copy.h"

namespace tandem {

StridedCopy transpose_copy(const KernelContext& c);
StridedCopy broadcast_to_copy(const KernelContext& c);
StridedCopy tile_copy(const KernelContext& c);
StridedCopy reverse_copy(const KernelContext& c);
StridedCopy slice_copy(const KernelContext& c);

// Concatenating and splitting: the number of rows of the whole tensor. Each part has one contiguous
// run of every row, in the order of the parts.
std::int64_t rows_of_join(const KernelContext& c);    // ConcatV2, Pack
std::int64_t rows_of_split(const KernelContext& c);   // SplitV
std::int64_t rows_of_unpack(const KernelContext& c);  // Unpack

}  // namespace tandem
