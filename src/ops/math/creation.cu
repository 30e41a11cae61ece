// The kernels of creation.cc on a GPU.
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/math/creation.h"

namespace tandem::cuda {
namespace {

// y[i] = value(i).
template <class T, class Value>
__global__ void __launch_bounds__(kThreads) make_elements(T* y, std::int64_t size, Value value) {
  constexpr int kCount = kPackOf<T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  Pack<T, kCount> out;
#pragma unroll
  for (int i = 0; i < kCount; ++i) out.at[i] = store_as<T>(value(mine.begin + i));
  store_pack(y, mine.begin, mine.count, out);
}

template <class T, class Value>
void make(KernelContext& c, const Value& value) {
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  constexpr int kCount = kPackOf<T>;
  launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, make_elements<T, Value>,
         c.outputs[0].as<T>(), size, value);
}

template <class C>
struct Constant {
  C value;
  __device__ C operator()(std::int64_t) const { return value; }
};

void fill_kernel(KernelContext& c) {
  switch_any(c.outputs[0].dtype, [&]<class T>(Type<T>) {
    make<T>(c, Constant<ComputeOf<T>>{rounded_to<T>(c.attrs<FillAttrs>().value)});
  });
}

void element_count_kernel(KernelContext& c) {
  const auto count = static_cast<double>(c.attrs<ElementCountAttrs>().sizes.num_elements());
  switch_any(c.outputs[0].dtype,
             [&]<class T>(Type<T>) { make<T>(c, Constant<ComputeOf<T>>{rounded_to<T>(count)}); });
}

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

void range_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  switch_numeric(attrs.dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      make<T>(c, IntegerSequence{static_cast<std::int64_t>(attrs.start),
                                 static_cast<std::int64_t>(attrs.step)});
    else
      make<T>(c, FloatSequence{attrs.start, attrs.step, 0.0, 0});
  });
}

void linspace_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  switch_floating(attrs.dtype, [&]<class T>(Type<T>) {
    make<T>(c, FloatSequence{attrs.start, attrs.step, attrs.last, attrs.count});
  });
}

struct Identity {
  std::int64_t columns;
  __device__ int operator()(std::int64_t i) const { return i / columns == i % columns ? 1 : 0; }
};

void eye_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<EyeAttrs>();
  switch_any(attrs.dtype, [&]<class T>(Type<T>) { make<T>(c, Identity{attrs.columns}); });
}

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
