// Attention as a graph of cuDNN's operations: by these and in this order its engines know it, and
// compute it as one kernel that keeps no matrix of scores.
#pragma once

#include <cstdint>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/module/cudnn_graph.h"

namespace tandem::cuda {

// What cuDNN is told of attention. Sizes are in the order batch, heads, positions, depth; keys are
// told of as their transpose, and so are values on the way back.
struct AttentionDescription {
  TensorDescription query, key, value, result, log_sums;
  TensorDescription dresult, dquery, dkey, dvalue;
  // Of the backward pass alone: each query's sum of dresult * result; and dquery's sums, where
  // blocks of keys add to it as they come.
  TensorDescription row_products, dquery_sums;
};
AttentionDescription describe(const CudnnAttention& attention);

// Numbers that the graph takes by value, float32 each.
inline constexpr std::int64_t kIdScale = 12, kIdNever = 13, kIdOne = 14;

// Alignment of all tensors in memory.
inline constexpr unsigned kAttentionAlignment = 16;

// `deterministic`: the backward pass keeps the gradients of scores in its workspace and has no
// dquery_sums.
CudnnGraph make_graph(const CudnnLibrary& library, const CudnnTarget& target,
                      const CudnnAttention& attention, bool deterministic);

}  // namespace tandem::cuda
