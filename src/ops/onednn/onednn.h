// Matrix products and convolutions through oneDNN (2.6 or later, and 3.x). Only this directory
// calls oneDNN.
//
// A primitive is created once per shape, dtype, attributes and team size, and cached by the thread
// that runs it. A repeated call looks it up by a few integers, passes the addresses and a
// scratchpad (from the kernel's context), and runs it. A step of a program keeps its primitive
// (KernelContext::keep) and needs no lookup. It keeps weights in the layout of the primitive, too,
// if they do not change (TensorView::version). Thread-safe: only oneDNN's own state is shared.
//
// Activations are not fused into the primitives, because oneDNN's ReLU turns NaN into 0, which
// would hide errors. Operations apply them to the result, which is still in the cache.
#pragma once

#include <chrono>
#include <cstdint>

#include "op/op.h"
#include "ops/conv_shape.h"

namespace tandem::onednn {

// A use of primitives. oneDNN keeps static objects, which exit() destroys. When it begins to, it
// waits for the uses under way; later ones block, because the process is about to end. On the
// thread that calls exit(), and after kExitLimit on others, they throw FailedPreconditionError.
class Use {
 public:
  Use();
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
};
inline constexpr std::chrono::seconds kExitLimit{10};

// The same for a kernel that calls gemm(), whose static objects are destroyed earlier. Where it is
// not possible() any more, the kernel computes its products itself.
class GemmUse {
 public:
  GemmUse();
  ~GemmUse();
  GemmUse(const GemmUse&) = delete;
  GemmUse& operator=(const GemmUse&) = delete;
  static bool possible();

 private:
  bool counts_;
};

// Whether oneDNN computes with tensors of this dtype directly: float32, and bfloat16 if the CPU has
// instructions for it. REQUIRED by the calls below.
bool computes(DType dtype);

// c[batch, m, n] = a[batch, m, k] . b[batch, k, n] + bias[n].
struct MatMul {
  DType dtype = float32;
  // The leading axes of a and b, of the same rank; a size of 1 broadcasts.
  Dims batch_a, batch_b;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;  // a is stored [batch, k, m]
  bool transpose_b = false;  // b is stored [batch, n, k]
  bool bias = false;
};
// `bias` may be null. REQUIRES: no size is 0.
void matmul(KernelContext& context, const MatMul& shape, const void* a, const TensorView& b,
            const void* bias, void* c);

// c[m, n] = a[m, k] . b[k, n], or c += a . b. `lda`, `ldb` and `ldc` are the distances between
// stored rows in elements, also if an operand is stored transposed.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};
// Runs on the calling thread and its team. Kernels that distribute tiles over threads call it with
// a team of one. REQUIRES: no size is 0, and a GemmUse of the kernel.
void gemm(const Gemm& shape, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float* c, std::int64_t ldc);

class Executable;

// Products c[m, n] = a[m, k] . b[k, n] in float32 with one b, which is packed once. For one kernel
// call. REQUIRES: no size is 0.
class PackedProduct {
 public:
  PackedProduct(KernelContext& context, std::int64_t m, std::int64_t n, std::int64_t k,
                const TensorView& b);
  void operator()(const float* a, float* c) const;

 private:
  Use use_;
  Executable* product_;  // of the context or the thread
  void* scratchpad_;
  const void* b_;
};

// All three convolutions REQUIRE: no size is 0.
// y = conv(x, kernel) + bias; `bias` may be null.
void conv_forward(KernelContext& context, const ConvShape& conv, const void* x,
                  const TensorView& kernel, const void* bias, void* y);
void conv_backward_input(KernelContext& context, const ConvShape& conv, const void* dy,
                         const TensorView& kernel, void* dx);
void conv_backward_filter(KernelContext& context, const ConvShape& conv, const void* x,
                          const void* dy, void* dkernel);

}  // namespace tandem::onednn
