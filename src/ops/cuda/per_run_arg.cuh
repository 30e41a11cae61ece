// Kernel arguments that are computed from attributes which may change with each run of a program:
// random keys, learning rates, step numbers. Kernels must take every such argument from
// per_run_arg(), because the arguments of a captured launch are fixed.
#pragma once

#include <type_traits>

#include "op/device_args.h"
#include "ops/cuda/launch.h"

namespace tandem::cuda {

template <class T>
struct PerRunArg {
  T value;
  const T* memory;  // the host writes the value of each run here; if null, `value` is used

  __device__ __forceinline__ T operator()() const { return memory ? *memory : value; }
};

// `Compute`, which must not capture anything, computes the argument from attributes A. It is called
// again for every run of a recording. If T has no padding, the value is copied to the device only
// when it has changed.
template <class A, class Compute>
auto per_run_arg(const KernelContext& c, Compute) {
  using T = std::invoke_result_t<Compute, const A&>;
  static_assert(std::is_empty_v<Compute> && std::is_trivially_copyable_v<T> && alignof(T) <= 16);
  const void* memory = nullptr;
  if (DeviceArgsScope* scope = DeviceArgsScope::current())
    memory = scope->place(
        c.attrs_data,
        [](const void* attrs, void* value) {
          *static_cast<T*>(value) = Compute{}(*static_cast<const A*>(attrs));
        },
        sizeof(T));
  return PerRunArg<T>{Compute{}(c.attrs<A>()), static_cast<const T*>(memory)};
}

}  // namespace tandem::cuda
