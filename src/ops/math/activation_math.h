// Activations that can be fused into other operations.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/formula/activations.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "tandem/nn.h"

namespace tandem::nn {

// Whether the activation can be fused: its derivative depends only on its result, so that the
// gradient needs no other tensor.
inline bool is_fused(Activation activation) {
  switch (activation) {
    case Activation::kLinear:
    case Activation::kRelu:
    case Activation::kRelu6:
    case Activation::kElu:
    case Activation::kSigmoid:
    case Activation::kTanh: return true;
    default: return false;
  }
}

// ReLU on the bits of BFloat16, which need no conversion. The bits of the numbers above 0 are 1 to
// those of infinity, and of the numbers below 0 the same plus 0x8000. The others (zeros and NaN)
// are treated as by the formula.
struct ReluBits {
  static constexpr std::uint16_t kInfinity = 0x7f80;
  TANDEM_INLINED static std::uint16_t value(std::uint16_t x, std::uint16_t = 0) {
    return static_cast<std::uint16_t>(x - 0x8001u) < kInfinity ? std::uint16_t{0} : x;
  }
  TANDEM_INLINED static std::uint16_t gradient(std::uint16_t dy, std::uint16_t y, std::uint16_t) {
    return static_cast<std::uint16_t>(y - 1u) < kInfinity ? dy : std::uint16_t{0};
  }
};

template <class T, class F>
[[gnu::always_inline]] inline void replace_each(T* y, std::int64_t count, const F& f) {
  write_elements(y, count, [=](std::int64_t i) { return f(static_cast<Compute<T>>(y[i])); });
}

template <class T>
TANDEM_INLINED void activate_range(Activation activation, T* y, std::int64_t count) {
  using C = Compute<T>;
  switch (activation) {
    case Activation::kRelu:
      if constexpr (std::is_same_v<T, BFloat16>) {
        auto* bits = reinterpret_cast<std::uint16_t*>(y);
        for (std::int64_t i = 0; i < count; ++i) bits[i] = ReluBits::value(bits[i]);
        return;
      } else {
        return replace_each(y, count, [](C x) { return cpu::Relu::value(x); });
      }
    case Activation::kRelu6:
      return replace_each(y, count, [](C x) { return cpu::Relu6::value(x); });
    case Activation::kElu:
      return replace_each(y, count, [](C x) { return cpu::Elu::value(x, C(1)); });
    case Activation::kSigmoid:
      return replace_each(y, count, [](C x) { return cpu::prim::sigmoid(x); });
    case Activation::kTanh: return replace_each(y, count, [](C x) { return cpu::prim::tanh(x); });
    default: return;
  }
}

// Applies a fused activation in place, in parallel over the calling thread's team.
template <class T>
void activate_in_place(Activation activation, T* y, std::int64_t count) {
  if (activation == Activation::kLinear) return;
  parallel_for(count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    run_loop<T, activate_range<T>>(activation, y + begin, end - begin);
  });
}
// The same for the results of oneDNN, which are float32 or bfloat16.
inline void activate_in_place(Activation activation, DType dtype, void* y, std::int64_t count) {
  if (dtype == bfloat16)
    activate_in_place(activation, static_cast<BFloat16*>(y), count);
  else
    activate_in_place(activation, static_cast<float*>(y), count);
}

}  // namespace tandem::nn
