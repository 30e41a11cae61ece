// The kernel of cast.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

// Converts to the compute type of To, from which elements are stored.
template <class To>
struct Convert {
  template <class C>
  __device__ auto operator()(C x) const {
    if constexpr (std::is_same_v<To, bool>)
      return x != C{};
    else if constexpr (std::is_same_v<To, std::uint8_t> && std::is_floating_point_v<C>)
      return static_cast<To>(static_cast<std::int32_t>(x));  // wraps, as from int32
    else
      return static_cast<ComputeOf<To>>(x);
  }
};

void cast_kernel(KernelContext& c) {
  switch_any(c.inputs[0].dtype, [&]<class From>(Type<From>) {
    switch_any(c.outputs[0].dtype, [&]<class To>(Type<To>) { unary_on<Convert<To>, From, To>(c); });
  });
}

}  // namespace

KernelList cast_kernels() {
  static constexpr CudaKernel kernels[] = {{"Cast", on_gpu<cast_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
