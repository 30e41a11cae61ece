// A convolution as a graph of cuDNN operations.
#pragma once

#include <array>
#include <cstdint>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/module/cudnn_graph.h"

namespace tandem::cuda {

inline constexpr std::int64_t kIdX = 1, kIdKernel = 2, kIdY = 3, kIdBias = 4;

// The description of a convolution. Pairs are of rows and columns.
struct ConvDescription {
  TensorDescription x, kernel, y, bias;
  std::array<std::int64_t, 2> pads, strides, dilations;
  cudnnDataType_t compute;  // the type in which sums are accumulated
};
ConvDescription describe(const CudnnConv& conv);

CudnnGraph make_graph(const CudnnLibrary& library, const CudnnTarget& target, const CudnnConv& conv,
                      unsigned alignment);

}  // namespace tandem::cuda
