// The kernels of compare.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/formula/functions.h"
#include "ops/math/scalar_attrs.h"

namespace tandem::cuda {
namespace {

template <class Op, class C>
struct WithNumber {
  C number;
  __device__ bool operator()(C x) const { return Op()(x, number); }
};

template <class Op>
void numeric(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) { binary_on<Op, T, bool>(c); });
}
template <class Op>
void any(KernelContext& c) {
  switch_any(c.inputs[0].dtype, [&]<class T>(Type<T>) { binary_on<Op, T, bool>(c); });
}
template <class Op>
void with_number(KernelContext& c) {
  const double number = c.attrs<ScalarAttrs>().scalar;
  switch_any(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    unary_on<WithNumber<Op, ComputeOf<T>>, T, bool>(c, {rounded_to<T>(number)});
  });
}
template <class Op>
void logical(KernelContext& c) {
  binary_on<Op, bool>(c);
}

// Elements are only moved, so that an unsigned integer of their size serves for any dtype.
template <class U>
__global__ void __launch_bounds__(kThreads)
    select_elements(const bool* condition, const U* a, const U* b, U* y, Strides<3> strides,
                    std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const auto at = strides.offsets(i);
  y[i] = condition[at.of[0]] ? a[at.of[1]] : b[at.of[2]];
}

template <class U>
void select(KernelContext& c) {
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  const Strides<3> strides(c.outputs[0].shape,
                           {&c.inputs[0].shape, &c.inputs[1].shape, &c.inputs[2].shape});
  launch(c, {.blocks = blocks_for(size)}, select_elements<U>, c.inputs[0].as<const bool>(),
         c.inputs[1].as<const U>(), c.inputs[2].as<const U>(), c.outputs[0].as<U>(), strides, size);
}

void select_kernel(KernelContext& c) {
  switch (size_of(c.inputs[1].dtype)) {
    case 1: return select<std::uint8_t>(c);
    case 2: return select<std::uint16_t>(c);
    case 4: return select<std::uint32_t>(c);
    default: return select<std::uint64_t>(c);
  }
}

}  // namespace

KernelList compare_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"Equal", on_gpu<any<Equal>>},
      {"NotEqual", on_gpu<any<NotEqual>>},
      {"Less", on_gpu<numeric<Less>>},
      {"LessEqual", on_gpu<numeric<LessEqual>>},
      {"Greater", on_gpu<numeric<Greater>>},
      {"GreaterEqual", on_gpu<numeric<GreaterEqual>>},
      {"EqualScalar", on_gpu<with_number<Equal>>},
      {"LessScalar", on_gpu<with_number<Less>>},
      {"LessEqualScalar", on_gpu<with_number<LessEqual>>},
      {"GreaterScalar", on_gpu<with_number<Greater>>},
      {"GreaterEqualScalar", on_gpu<with_number<GreaterEqual>>},
      {"LogicalAnd", on_gpu<logical<LogicalAnd>>},
      {"LogicalOr", on_gpu<logical<LogicalOr>>},
      {"SelectV2", on_gpu<select_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
