#include "hvd/pack.h"

#include <cstring>
#include <type_traits>

#include "core/clones.h"
#include "core/parallel.h"
#include "core/status.h"

namespace tandem::hvd {
namespace {

constexpr std::int64_t kGrain = 32 << 10;  // elements worth a thread

// float16 and bfloat16 are scaled in float32, integers in float64.
template <class To, class From>
using Scale = std::conditional_t<std::is_integral_v<To> || std::is_same_v<To, double> ||
                                     std::is_same_v<From, double>,
                                 double, float>;

template <class To, class From>
TANDEM_CLONES void scale_range(To* to, const From* from, std::int64_t count, double scale) {
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
void run(const HostArray& to, const HostArray& from, std::int64_t count, double scale) {
  auto* target = static_cast<To*>(to.data);
  const auto* source = static_cast<const From*>(from.data);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    scale_range(target + begin, source + begin, end - begin, scale);
  });
}

template <class From>
void from_floating(const HostArray& to, const HostArray& from, std::int64_t count, double scale) {
  switch (to.dtype) {
    case DType::kFloat32: return run<float, From>(to, from, count, scale);
    case DType::kFloat64: return run<double, From>(to, from, count, scale);
    case DType::kFloat16: return run<Half, From>(to, from, count, scale);
    case DType::kBFloat16: return run<BFloat16, From>(to, from, count, scale);
    default:
      fail<InternalError>("[hvd] {} does not become {}", name_of(from.dtype), name_of(to.dtype));
  }
}

}  // namespace

void copy_scaled(const HostArray& to, const HostArray& from, std::int64_t count, double scale) {
  if (count == 0) return;
  if (scale == 1.0 && to.dtype == from.dtype) {
    if (to.data != from.data)
      std::memcpy(to.data, from.data, static_cast<std::size_t>(count) * size_of(to.dtype));
    return;
  }
  switch (from.dtype) {
    case DType::kFloat32: return from_floating<float>(to, from, count, scale);
    case DType::kFloat64: return from_floating<double>(to, from, count, scale);
    case DType::kFloat16: return from_floating<Half>(to, from, count, scale);
    case DType::kBFloat16: return from_floating<BFloat16>(to, from, count, scale);
    case DType::kInt32: return run<std::int32_t, std::int32_t>(to, from, count, scale);
    case DType::kInt64: return run<std::int64_t, std::int64_t>(to, from, count, scale);
    case DType::kUInt8: return run<std::uint8_t, std::uint8_t>(to, from, count, scale);
    case DType::kBool: break;
  }
  fail<InternalError>("[hvd] bool elements cannot be scaled");
}

}  // namespace tandem::hvd
