/// @file
/// Options of the methods of Tensor.
#pragma once

#include <cstdint>

namespace tandem {

/// Options of Tensor::backward(). As the arguments of torch.Tensor.backward.
struct BackwardOptions {
  bool retain_graph = false;  ///< keep the record, so that backward() can run again
  /// Records the backward pass for higher-order derivatives; implies retain_graph. grad() of a leaf
  /// then refers to the leaf: a reference cycle whose memory is kept until zero_grad(), as in
  /// PyTorch. GradientTape::gradient() creates no cycle.
  bool create_graph = false;
};

/// Options of functions along one axis, where the axis has a default.
struct AxisOptions {
  std::int64_t axis = 0;  ///< the axis; negative ones count from the end
};

}  // namespace tandem
