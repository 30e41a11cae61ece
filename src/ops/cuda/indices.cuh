// Index tensors of int32 or int64.
#pragma once

#include "ops/cuda/launch.h"

namespace tandem::cuda {

struct Indices {
  const void* data;
  bool wide;  // int64, else int32
  explicit Indices(const TensorView& view) : data(view.data), wide(view.dtype == int64) {}
  __device__ std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(data)[i]
                : static_cast<const std::int32_t*>(data)[i];
  }
};

}  // namespace tandem::cuda
