// Reduced gradients as tensors that are views of a packing reducer's buckets, without copies.
#pragma once

#include <vector>

#include "sync/reducer.h"
#include "tandem/tensor.h"

namespace tandem {

// A tensor over `buffer`, which lies in `memory`. The tensor keeps the memory alive.
Tensor view_of(Device& device, const std::shared_ptr<void>& memory, const Buffer& buffer,
               const Shape& shape);

// The views of one reducer's gradients. If a caller still holds a view of a bucket when the next
// step begins, the bucket gets new memory, so that the held tensor does not change. Called on the
// reducer's thread.
class GradientViews {
 public:
  // `shapes` are the gradients' shapes in the reducer's order. REQUIRES: reducer.packs(), and the
  // reducer outlives this object.
  GradientViews(Reducer& reducer, Device& device, std::vector<Shape> shapes);

  // Called before the step's first gradient.
  void begin_step();
  // The view into which gradient `index` of the current step may be computed. Undefined if another
  // tensor shares the view or its memory.
  Tensor writable_view(std::size_t index);
  // Gradient `index` of the last finished step.
  const Tensor& view(std::size_t index);

 private:
  Reducer& reducer_;
  Device& device_;
  std::vector<Shape> shapes_;
  std::vector<Tensor> views_;  // made on demand; undefined after the bucket's memory is replaced
  std::size_t generation_ = 0;
};

}  // namespace tandem
