// The kernels of arithmetic.cc, add_n.cc and clip.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/refused.cuh"
#include "ops/formula/functions.h"
#include "ops/math/scalar_attrs.h"

namespace tandem::cuda {
namespace {

template <class Op, class C, bool kLeft>
struct WithNumber {
  C number;
  __device__ C operator()(C x) const { return kLeft ? Op()(number, x) : Op()(x, number); }
};

template <class Op>
void numeric(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) { binary_on<Op, T>(c); });
}

void div_kernel(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    refuse_right<Div, T>(c, c.inputs[1]);
    binary_on<Div, T>(c);
  });
}
void number_div_kernel(KernelContext& c) {
  const double number = c.attrs<ScalarAttrs>().scalar;
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    refuse_right<Div, T>(c, c.inputs[0]);
    unary_on<WithNumber<Div, ComputeOf<T>, true>, T>(c, {rounded_to<T>(number)});
  });
}

template <class Op>
void floating(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) { binary_on<Op, T>(c); });
}
// The number is converted to an element first, as on the CPU.
template <class Op, bool kLeft = false>
void with_number(KernelContext& c) {
  const double number = c.attrs<ScalarAttrs>().scalar;
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    unary_on<WithNumber<Op, C, kLeft>, T>(c, {rounded_to<T>(number)});
  });
}
template <class C>
struct Clip {
  C low, high;
  __device__ C operator()(C x) const { return AtMost()(AtLeast()(x, low), high); }
};

void clip_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<ClipAttrs>();
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    unary_on<Clip<ComputeOf<T>>, T>(c, {rounded_to<T>(attrs.low), rounded_to<T>(attrs.high)});
  });
}

// Tensors per launch of AddN. For 16-bit types, the sum is kept in float32 between launches.
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

KernelList arithmetic_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"AddV2", on_gpu<numeric<Add>>},
      {"Sub", on_gpu<numeric<Sub>>},
      {"Mul", on_gpu<numeric<Mul>>},
      {"RealDiv", on_gpu<div_kernel>},
      {"Maximum", on_gpu<numeric<Maximum>>},
      {"Minimum", on_gpu<numeric<Minimum>>},
      {"SquaredDifference", on_gpu<numeric<SquaredDifference>>},
      {"AddScalar", on_gpu<with_number<Add>>},
      {"SubScalar", on_gpu<with_number<Sub>>},
      {"ScalarSub", on_gpu<with_number<Sub, true>>},
      {"MulScalar", on_gpu<with_number<Mul>>},
      {"DivScalar", on_gpu<with_number<Div>>},
      {"ScalarDiv", on_gpu<number_div_kernel>},
      {"MaximumScalar", on_gpu<with_number<Maximum>>},
      {"MinimumScalar", on_gpu<with_number<Minimum>>},
      {"TanhGrad", on_gpu<floating<TanhGrad>>},
      {"SigmoidGrad", on_gpu<floating<SigmoidGrad>>},
      {"ClipByValue", on_gpu<clip_kernel>},
      {"AddN", on_gpu<add_n_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
