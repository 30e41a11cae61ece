// Shared by the loops over elements.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/op.h"

namespace tandem {

// The least number of elements per thread for which waking a thread pays off.
inline constexpr std::int64_t kElementwiseGrain = 16 * 1024;

template <class T>
inline constexpr bool is_16_bit_floating = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// Whether elements are floats of fewer than 32 bits.
template <class T>
inline constexpr bool is_narrow_floating =
    is_16_bit_floating<T> || std::is_same_v<T, Float8E4M3FN> || std::is_same_v<T, Float8E5M2>;

// The type in which arithmetic on elements of type T is done.
template <class T>
using Compute = std::conditional_t<is_narrow_floating<T>, float, T>;

template <class Out, class V>
inline Out store_as(V value) {
  if constexpr (is_narrow_floating<Out>)
    return Out(static_cast<float>(value));
  else
    return static_cast<Out>(value);
}

// Calls f(TypeTag<T>()) with the element type of a dtype. REQUIRES: it is not bool or float16.
template <class F>
decltype(auto) switch_numeric(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt32: return f(TypeTag<std::int32_t>());
    case DType::kInt64: return f(TypeTag<std::int64_t>());
    case DType::kUInt8: return f(TypeTag<std::uint8_t>());
    default: return switch_floating(dtype, f);
  }
}

// The same for bool as well.
template <class F>
decltype(auto) switch_computed(DType dtype, F&& f) {
  return dtype == bool_ ? f(TypeTag<bool>()) : switch_numeric(dtype, f);
}

// A set of dtypes, as a bit mask.
using DTypeSet = std::uint32_t;
constexpr DTypeSet set_of(DType dtype) { return 1u << static_cast<unsigned>(dtype); }
inline constexpr DTypeSet kFloating =
    set_of(float32) | set_of(float64) | set_of(float16) | set_of(bfloat16);
inline constexpr DTypeSet kSigned = kFloating | set_of(int32) | set_of(int64);
inline constexpr DTypeSet kNumeric = kSigned | set_of(uint8);
inline constexpr DTypeSet kAnyDType = kNumeric | set_of(bool_);

// The tensors that a gradient reads (OpDef::saved_inputs, saved_outputs).
struct SavedTensors {
  std::uint32_t inputs = 0, outputs = 0;
};

// Throws InvalidArgumentError "[op] expected a floating dtype, got int32" unless `dtype` is in
// `set`.
void check_dtype(std::string_view op, DTypeSet set, DType dtype);

}  // namespace tandem
