// The one place that speaks to oneDNN (2.6 or later, and 3.x): matrix products and convolutions.
//
// Primitives are made once for each shape, dtype, attributes and team size, and kept by the thread
// that runs them; a repeated call looks one up by a few integers, hands it the addresses and its
// scratchpad (from the kernel's context), and runs. A step of a program keeps its primitive itself
// (KernelContext::keep) and looks nothing up. Thread-safe: no state is shared but oneDNN's own.
//
// Activations are not fused into the primitives: oneDNN's ReLU turns NaN into 0, which would hide a
// computation that has gone wrong. Operations apply them to the result, which is still in the
// cache.
#pragma once

#include <cstdint>

#include "op/op.h"
#include "ops/conv_shape.h"

namespace tandem::onednn {

// Whether tensors of this dtype are computed on as they are: float32, and bfloat16 where the CPU
// has instructions for it. The calls below REQUIRE it.
bool computes(DType dtype);

// c[batch, m, n] = a[batch, m, k] . b[batch, k, n] + bias[n].
struct MatMul {
  DType dtype = float32;
  // The leading axes of a and b, from the front and of one rank; a size of 1 broadcasts.
  Dims batch_a, batch_b;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;  // a is stored [batch, k, m]
  bool transpose_b = false;  // b is stored [batch, n, k]
  bool bias = false;
};
// REQUIRES: no size is 0. `bias` is null without one.
void matmul(KernelContext& context, const MatMul& shape, const void* a, const void* b,
            const void* bias, void* c);

// c[m, n] = a[m, k] . b[k, n], added to what is there or not. Rows lie as many elements
// apart as `lda`, `ldb`, `ldc` say, those of what is stored where an operand is transposed.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};
// On the calling thread and its team; a kernel that shares out its tiles gives each thread a team
// of one. REQUIRES: no size is 0.
void gemm(const Gemm& shape, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float* c, std::int64_t ldc);

// REQUIRES for all three: no size is 0.
// y = conv(x, kernel) + bias; `bias` may be null.
void conv_forward(KernelContext& context, const ConvShape& conv, const void* x, const void* kernel,
                  const void* bias, void* y);
void conv_backward_input(KernelContext& context, const ConvShape& conv, const void* dy,
                         const void* kernel, void* dx);
void conv_backward_filter(KernelContext& context, const ConvShape& conv, const void* x,
                          const void* dy, void* dkernel);

}  // namespace tandem::onednn
