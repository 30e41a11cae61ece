// The kernels of creation.cc on a GPU.
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/math/creation.h"

namespace tandem::cuda {
namespace {

constexpr int kPack = 8;  // 16 bytes of the 16-bit types

// y[i] = value(i).
template <class Value>
__global__ void __launch_bounds__(kThreads)
    make_elements(void* y, DType dtype, std::int64_t size, Value value) {
  const MyPack<kPack> mine(size);
  if (mine.count == 0) return;
  decltype(value(0)) numbers[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) numbers[i] = value(mine.begin + i);
  store_numbers(y, dtype, mine, numbers);
}

template <class Value>
void make(KernelContext& c, const Value& value) {
  const TensorView& y = c.outputs[0];
  const std::int64_t size = y.size();
  if (size > 0)
    launch(c, {.blocks = blocks_for((size + kPack - 1) / kPack)}, make_elements<Value>, y.data,
           y.dtype, size, value);
}

struct Constant {
  double value;
  __device__ double operator()(std::int64_t) const { return value; }
};
struct IntegerSequence {
  std::int64_t start, step;
  __device__ std::int64_t operator()(std::int64_t i) const { return start + i * step; }
};
struct FloatSequence {
  double start, step, last;
  std::int64_t count;  // element count - 1 is `last`; 0: there is no such rule
  __device__ double operator()(std::int64_t i) const {
    // The product is rounded, as on the CPU.
    return i > 0 && i == count - 1 ? last
                                   : __dadd_rn(start, __dmul_rn(static_cast<double>(i), step));
  }
};
struct Identity {
  std::int64_t columns;
  __device__ float operator()(std::int64_t i) const {
    return i / columns == i % columns ? 1.0f : 0.0f;
  }
};

void fill_kernel(KernelContext& c) { make(c, Constant{c.attrs<FillAttrs>().value}); }

void element_count_kernel(KernelContext& c) {
  make(c, Constant{static_cast<double>(c.attrs<ElementCountAttrs>().sizes.num_elements())});
}

void range_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  if (is_floating(attrs.dtype))
    make(c, FloatSequence{attrs.start, attrs.step, 0.0, 0});
  else
    make(c, IntegerSequence{static_cast<std::int64_t>(attrs.start),
                            static_cast<std::int64_t>(attrs.step)});
}

void linspace_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  make(c, FloatSequence{attrs.start, attrs.linspace_step(), attrs.last, attrs.count});
}

void eye_kernel(KernelContext& c) { make(c, Identity{c.attrs<EyeAttrs>().columns}); }

}  // namespace

KernelList creation_kernels() {
  static constexpr CudaKernel kernels[] = {{"Fill", on_gpu<fill_kernel>},
                                           {"ElementCount", on_gpu<element_count_kernel>},
                                           {"Range", on_gpu<range_kernel>},
                                           {"LinSpace", on_gpu<linspace_kernel>},
                                           {"Eye", on_gpu<eye_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
