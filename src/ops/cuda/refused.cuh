// Elements that integer operations refuse.
#pragma once

#include "ops/cuda/elements.cuh"
#include "ops/cuda/faults.cuh"

namespace tandem::cuda {

struct IsZero {
  template <class T>
  __device__ bool operator()(T x) const {
    return x == T{0};
  }
};
struct IsNegative {
  template <class T>
  __device__ bool operator()(T x) const {
    return x < T{0};
  }
};

template <class T, class Test>
__global__ void __launch_bounds__(kThreads)
    find_refused(const T* x, std::int64_t size, Test test, Refusal refusal) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < size && test(x[i])) refusal.tell(static_cast<std::int64_t>(x[i]), i);
}

// `text`: as of Refusal.
template <class T, class Test>
void refuse_elements(KernelContext& c, const TensorView& x, const Test& test, const char* text) {
  if (x.size() > 0)
    launch(c, {.blocks = blocks_for(x.size())}, find_refused<T, Test>, x.as<const T>(), x.size(),
           test, Refusal(c, text));
}

// Integers refuse a divisor of 0.
template <class T>
void refuse_zero_divisors(KernelContext& c, const TensorView& divisors) {
  if constexpr (std::is_integral_v<T>)
    refuse_elements<T>(c, divisors, IsZero(),
                       "[{op}] expected a non-zero divisor, got {value} at element {position}");
}

}  // namespace tandem::cuda
