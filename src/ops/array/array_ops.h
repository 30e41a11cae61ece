// Operations and helpers that several files of this directory use.
#pragma once

#include <cstdint>
#include <string>

#include "op/op.h"

namespace tandem {

extern const OpDef kReshape, kExpandDims, kSqueeze, kIdentity, kStopGradient;  // shape.cc
extern const OpDef kTranspose, kBroadcastTo, kTile, kReverse;                  // rearrange.cc
extern const OpDef kSlice, kStridedSlice;                                      // slice.cc
extern const OpDef kPad, kSliceGrad;                                           // pad.cc
extern const OpDef kGather, kGatherGrad, kAssignSlice;                         // index.cc

// Converts `axis`, which may be negative, to 0 .. rank-1. Throws InvalidArgumentError "[op]
// expected an axis ...".
int normalize_axis(const OpDef& op, std::int64_t axis, int rank);

// Adds each row of `rows` to the row of a tensor of zeros, of shape `shape`, that its index says:
// the sums have the order of the indices.
Tensor add_to_rows(const Tensor& rows, const Tensor& indices, const Shape& shape);

// The int64 position among all elements of x of each of `indices`, positions of `axis`; -1 for one
// out of range. Throws as gather().
Tensor element_positions(const char* function, const Tensor& x, std::int64_t axis,
                         const Tensor& indices);

// Writes `part` into the elements of a variable, from index `first`, an int64 scalar, along `axis`.
void assign_slice(const Tensor& variable, const Tensor& part, const Tensor& first,
                  std::int64_t axis);

// "(1, -1)"
std::string text_of(const Dims& dims);

}  // namespace tandem
