// The kernel of add_n.cc on a GPU.
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/formula/functions.h"

namespace tandem::cuda {
namespace {

// Tensors per launch. For 16-bit types, the sum is kept in float32 between launches.
constexpr int kTermsAtOnce = 8;

template <class T>
struct Terms {
  const T* of[kTermsAtOnce];
  int count;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_terms(Terms<T> terms, const ComputeOf<T>* before, ComputeOf<T>* wide, T* out,
              std::int64_t size) {
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<C>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  Pack<C, kCount> sum;
  if (before)
    sum = load_pack<kCount>(before, mine.begin, mine.count);
  else
    for (C& each : sum.at) each = C{0};
#pragma unroll
  for (int n = 0; n < kTermsAtOnce; ++n) {  // unrolled, since parameters cannot be indexed
    if (n >= terms.count) break;
    const auto term = load_pack<kCount>(terms.of[n], mine.begin, mine.count);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum.at[i] = Add()(sum.at[i], load_as(term.at[i]));
  }
  if (wide) {
    store_pack(wide, mine.begin, mine.count, sum);
    return;
  }
  Pack<T, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.at[i] = store_as<T>(sum.at[i]);
  store_pack(out, mine.begin, mine.count, result);
}

void add_n_kernel(KernelContext& c) {
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    constexpr int kCount = kPackOf<C>;
    const int inputs = c.inputs.size();
    C* wide = inputs > kTermsAtOnce
                  ? static_cast<C*>(c.scratch(static_cast<std::size_t>(size) * sizeof(C)))
                  : nullptr;
    for (int first = 0; first < inputs; first += kTermsAtOnce) {
      Terms<T> terms{};
      terms.count = std::min(kTermsAtOnce, inputs - first);
      for (int n = 0; n < terms.count; ++n)
        terms.of[n] = c.inputs[first + n].template as<const T>();
      const bool last = first + terms.count == inputs;
      launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, add_terms<T>, terms,
             first > 0 ? wide : nullptr, last ? nullptr : wide, c.outputs[0].as<T>(), size);
    }
  });
}

}  // namespace

KernelList add_n_kernels() {
  static constexpr CudaKernel kernels[] = {{"AddN", on_gpu<add_n_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
