// Converts run-time dtypes to C++ types.
#pragma once

#include "core/status.h"
#include "tandem/dtype.h"

namespace tandem {

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>()) with the element type of `dtype`. REQUIRES: !is_storage(dtype), which the
// inference of outputs checks.
template <class F>
decltype(auto) switch_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(TypeTag<float>());
    case DType::kFloat64: return f(TypeTag<double>());
    case DType::kFloat16: return f(TypeTag<Half>());
    case DType::kBFloat16: return f(TypeTag<BFloat16>());
    case DType::kInt32: return f(TypeTag<std::int32_t>());
    case DType::kInt64: return f(TypeTag<std::int64_t>());
    case DType::kUInt8: return f(TypeTag<std::uint8_t>());
    case DType::kBool: return f(TypeTag<bool>());
    default: fail<InternalError>("not a dtype of kernels: {}", static_cast<int>(dtype));
  }
}

// The same for dtypes of storage, and for all.
template <class F>
decltype(auto) switch_storage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt8: return f(TypeTag<std::int8_t>());
    case DType::kInt16: return f(TypeTag<std::int16_t>());
    case DType::kUInt16: return f(TypeTag<std::uint16_t>());
    case DType::kUInt32: return f(TypeTag<std::uint32_t>());
    case DType::kUInt64: return f(TypeTag<std::uint64_t>());
    case DType::kFloat8E4M3FN: return f(TypeTag<Float8E4M3FN>());
    case DType::kFloat8E5M2: return f(TypeTag<Float8E5M2>());
    default: fail<InternalError>("not a dtype of storage: {}", static_cast<int>(dtype));
  }
}
template <class F>
decltype(auto) switch_any_dtype(DType dtype, F&& f) {
  return is_storage(dtype) ? switch_storage(dtype, f) : switch_dtype(dtype, f);
}

// The same for floating types that CPU kernels compute with. REQUIRES: is_floating(dtype), which
// shape rules check; and not float16 (InFloat32).
template <class F>
decltype(auto) switch_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(TypeTag<float>());
    case DType::kFloat64: return f(TypeTag<double>());
    case DType::kBFloat16: return f(TypeTag<BFloat16>());
    default: fail<InternalError>("not a dtype of floating kernels: {}", name_of(dtype));
  }
}

}  // namespace tandem
