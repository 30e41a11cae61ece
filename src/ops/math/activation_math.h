// Activations that can be fused into other operations.
#pragma once

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/formula/activations.h"
#include "ops/math/elementwise.h"
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

template <class T, class F>
[[gnu::always_inline]] inline void replace_each(T* y, std::int64_t count, const F& f) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = store_as<T>(f(static_cast<Compute<T>>(y[i])));
}

template <class T>
TANDEM_MULTIVERSION void activate_range(Activation activation, T* y, std::int64_t count) {
  using C = Compute<T>;
  switch (activation) {
    case Activation::kRelu: return replace_each(y, count, [](C x) { return cpu::Relu::value(x); });
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
    activate_range(activation, y + begin, end - begin);
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
