// Arguments of launches that depend on attributes which each run of a program may renew: what is
// drawn, rates, steps. Everything that a kernel takes of such attributes goes through renewed().
#pragma once

#include <type_traits>

#include "op/device_args.h"
#include "ops/cuda/launch.h"

namespace tandem::cuda {

template <class T>
struct Renewed {
  T value;
  const T* memory;  // where the host puts the value of each run; null: it is `value`

  __device__ __forceinline__ T operator()() const { return memory ? *memory : value; }
};

// `Compute`, which captures nothing, makes the value of attributes A. It is asked again for every
// run of a recording. A value without padding is copied to the device only when it has changed.
template <class A, class Compute>
auto renewed(const KernelContext& c, Compute) {
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
  return Renewed<T>{Compute{}(c.attrs<A>()), static_cast<const T*>(memory)};
}

}  // namespace tandem::cuda
