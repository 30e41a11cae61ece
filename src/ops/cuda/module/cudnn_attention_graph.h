// Attention as a graph of cuDNN operations. cuDNN's engines recognise exactly these operations in
// this order, and run them as one kernel that does not store the matrix of scores.
#pragma once

#include <cstdint>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/module/cudnn_graph.h"

namespace tandem::cuda {

// Descriptions of the tensors of attention. Sizes are in the order batch, heads, positions, depth.
// Keys are described as their transpose, and in the backward pass so are values.
struct AttentionDescription {
  TensorDescription query, key, value, result, log_sums;
  TensorDescription dresult, dquery, dkey, dvalue;
  // Only in the backward pass: per query, the sum of dresult * result; and the sums of dquery, to
  // which blocks of keys add if the pass is not deterministic.
  TensorDescription row_products, dquery_sums;
};
AttentionDescription describe(const CudnnAttention& attention);

// Ids of the scalars that the graph takes by value, each float32.
inline constexpr std::int64_t kIdScale = 12, kIdNever = 13, kIdOne = 14;

// The alignment of all tensors in memory, in bytes.
inline constexpr unsigned kAttentionAlignment = 16;

// If `deterministic`, the backward pass stores the gradients of scores in its workspace instead of
// using dquery_sums.
CudnnGraph make_graph(const CudnnLibrary& library, const CudnnTarget& target,
                      const CudnnAttention& attention, bool deterministic);

}  // namespace tandem::cuda
