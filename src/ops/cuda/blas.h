// Matrix products through cuBLASLt.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem::cuda {

// c = a . b for `batch` row-major matrices: c [m, n], a [m, k] ([k, m] if transposed), b [k, n]
// ([n, k] if transposed). Strides are in elements from one matrix to the next; 0 if all products
// share one matrix.
struct BlasProduct {
  DType dtype = float32;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0;
  const void* bias = nullptr;  // [n], added to each row; not supported for float64
  bool tf32 = false;           // allows TF32 for float32
};

// 16-bit types accumulate in float32. Returns false without computing if cuBLAS supports the
// product only without its bias. REQUIRES: m, n, k and batch are positive.
[[nodiscard]] bool blas_product(KernelContext& context, const BlasProduct& product, const void* a,
                                const void* b, void* c);

}  // namespace tandem::cuda
