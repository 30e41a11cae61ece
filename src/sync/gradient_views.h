// Reduced gradients as tensors, where a reducer packs: views of its buckets, without copies.
#pragma once

#include <vector>

#include "sync/reducer.h"
#include "tandem/tensor.h"

namespace tandem {

// Elements in memory of a communicator's, which the tensor keeps.
Tensor view_of(Device& device, const std::shared_ptr<void>& memory, const Buffer& buffer,
               const Shape& shape);

// Tensors keep what they were read as: a bucket of which some view is still held when the next step
// begins goes on in other memory. Of the reducer's thread.
class GradientViews {
 public:
  // The gradients' shapes, in the reducer's order. REQUIRES: reducer.packs(), and it lives as long.
  GradientViews(Reducer& reducer, Device& device, std::vector<Shape> shapes);

  // Before anything of a step is ready.
  void begin_step();
  // The place of gradient `index` in the step that has begun, where nobody reads it; else
  // undefined.
  Tensor vacant(std::size_t index);
  // Gradient `index` of the step that has finished.
  const Tensor& view(std::size_t index);

 private:
  Reducer& reducer_;
  Device& device_;
  std::vector<Shape> shapes_;
  std::vector<Tensor> views_;  // undefined: not asked for since the memory is the present one
  std::size_t generation_ = 0;
};

}  // namespace tandem
