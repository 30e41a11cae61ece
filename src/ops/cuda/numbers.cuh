// Per-column parameters, whose dtype may differ from that of the data.
#pragma once

#include "ops/cuda/elements.cuh"

namespace tandem::cuda {

// An array of numbers of any floating dtype, each of which is read or written once.
class Numbers {
 public:
  explicit Numbers(const TensorView& view) : data_(view.data), dtype_(view.dtype) {}
  template <class C>
  __device__ C at(std::int64_t i) const {
    switch (dtype_) {
      case DType::kFloat64: return static_cast<C>(static_cast<const double*>(data_)[i]);
      case DType::kFloat16: return load_as(static_cast<const __half*>(data_)[i]);
      case DType::kBFloat16: return load_as(static_cast<const __nv_bfloat16*>(data_)[i]);
      default: return static_cast<const float*>(data_)[i];
    }
  }
  __device__ void set(std::int64_t i, double value) const {
    switch (dtype_) {
      case DType::kFloat64: static_cast<double*>(data_)[i] = value; break;
      case DType::kFloat16: static_cast<__half*>(data_)[i] = store_as<__half>(value); break;
      case DType::kBFloat16:
        static_cast<__nv_bfloat16*>(data_)[i] = store_as<__nv_bfloat16>(value);
        break;
      default: static_cast<float*>(data_)[i] = static_cast<float>(value);
    }
  }

 private:
  void* data_;
  DType dtype_;
};

template <class C>
__global__ void __launch_bounds__(kThreads)
    convert_numbers(Numbers from, C* to, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < size) to[i] = from.at<C>(i);
}

// The elements as type C, for kernels that read them many times. Converted in scratch memory if
// they have another type.
template <class C>
const C* converted_on(KernelContext& c, const TensorView& view) {
  constexpr DType kWanted = sizeof(C) == 8 ? DType::kFloat64 : DType::kFloat32;
  if (view.dtype == kWanted) return view.as<const C>();
  const std::int64_t size = view.size();
  C* copy = static_cast<C*>(c.scratch(static_cast<std::size_t>(size) * sizeof(C)));
  if (size > 0)
    launch(c, {.blocks = blocks_for(size)}, convert_numbers<C>, Numbers(view), copy, size);
  return copy;
}

}  // namespace tandem::cuda
