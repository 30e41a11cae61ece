// Checks operands that integer operations refuse, such as a divisor of 0.
#pragma once

#include "ops/cuda/elements.cuh"
#include "ops/cuda/faults.cuh"

namespace tandem::cuda {

template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    find_refused(const T* x, std::int64_t size, Refusal refusal) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < size && Op::refuses(x[i])) refusal.report(static_cast<std::int64_t>(x[i]), i);
}

// Reports right operands that `Op` refuses if T is an integer type.
template <class Op, class T>
void refuse_right(KernelContext& c, const TensorView& x) {
  if constexpr (std::is_integral_v<T>)
    if (x.size() > 0)
      launch(c, {.blocks = blocks_for(x.size())}, find_refused<Op, T>, x.as<const T>(), x.size(),
             Refusal(c, "[{op}] expected {expected}, got {value} at element {position}", 0, 0,
                     Op::kExpected));
}

}  // namespace tandem::cuda
