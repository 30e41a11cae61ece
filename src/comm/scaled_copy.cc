#include "comm/scaled_copy.h"

#include <cstring>
#include <type_traits>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kGrain = 32 << 10;  // minimum elements per thread

// float16 and bfloat16 are scaled in float32, integers in float64.
template <class To, class From>
using Scale = std::conditional_t<std::is_integral_v<To> || std::is_same_v<To, double> ||
                                     std::is_same_v<From, double>,
                                 double, float>;

template <class To, class From>
TANDEM_MULTIVERSION void scale_range(To* to, const From* from, std::int64_t count, double scale) {
  using S = Scale<To, From>;
  const S factor = static_cast<S>(scale);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const S value = static_cast<S>(from[i]) * factor;
    if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>)
      to[i] = To(static_cast<float>(value));
    else
      to[i] = static_cast<To>(value);
  }
}

template <class To, class From>
void run(void* to, const void* from, std::int64_t count, double scale) {
  auto* target = static_cast<To*>(to);
  const auto* source = static_cast<const From*>(from);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    scale_range(target + begin, source + begin, end - begin, scale);
  });
}

template <class From>
void from_floating(void* to, DType to_dtype, const void* from, std::int64_t count, double scale) {
  switch (to_dtype) {
    case DType::kFloat32: return run<float, From>(to, from, count, scale);
    case DType::kFloat64: return run<double, From>(to, from, count, scale);
    case DType::kFloat16: return run<Half, From>(to, from, count, scale);
    case DType::kBFloat16: return run<BFloat16, From>(to, from, count, scale);
    default: fail<InternalError>("[copy] floating elements do not become {}", name_of(to_dtype));
  }
}

}  // namespace

void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count,
                 double scale) {
  if (count == 0) return;
  if (scale == 1.0 && to_dtype == from_dtype) {
    if (to != from) std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_dtype));
    return;
  }
  switch (from_dtype) {
    case DType::kFloat32: return from_floating<float>(to, to_dtype, from, count, scale);
    case DType::kFloat64: return from_floating<double>(to, to_dtype, from, count, scale);
    case DType::kFloat16: return from_floating<Half>(to, to_dtype, from, count, scale);
    case DType::kBFloat16: return from_floating<BFloat16>(to, to_dtype, from, count, scale);
    case DType::kInt32: return run<std::int32_t, std::int32_t>(to, from, count, scale);
    case DType::kInt64: return run<std::int64_t, std::int64_t>(to, from, count, scale);
    case DType::kUInt8: return run<std::uint8_t, std::uint8_t>(to, from, count, scale);
    default: break;
  }
  fail<InternalError>("[copy] {} elements cannot be scaled", name_of(from_dtype));
}

}  // namespace tandem
