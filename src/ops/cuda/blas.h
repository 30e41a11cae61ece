// Matrix products through cuBLASLt.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem::cuda {

// c = a . b over row-major matrices, `batch` times; c [m, n], a [m, k] ([k, m] if transposed),
// b [k, n] ([n, k]). Strides are elements from one matrix to the next, 0 where one serves all.
struct BlasProduct {
  DType dtype = float32;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0;
  const void* bias = nullptr;  // [n], added to each row; not of float64
  bool relu = false;           // of the result; not of float64
  bool tf32 = false;           // float32 may be computed in it
};

// REQUIRES: m, n, k and batch above 0. 16-bit types accumulate in float32. False, and nothing is
// done, where cuBLAS has the product without its bias or ReLU alone.
[[nodiscard]] bool blas_product(KernelContext& context, const BlasProduct& product, const void* a,
                                const void* b, void* c);

}  // namespace tandem::cuda
