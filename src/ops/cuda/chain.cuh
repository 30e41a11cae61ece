// Interprets the code of a chain (chain.h) on the GPU. C is the compute type.
#pragma once

#include "ops/cuda/chain.h"
#include "ops/cuda/elements.cuh"
#include "ops/formula/activations.h"
#include "ops/formula/functions.h"

namespace tandem::cuda {

// The compute type for elements of type T. Integers that are narrower wrap around when stored.
template <class T>
using ChainNumber = std::conditional_t<std::is_same_v<T, bool> || is_16_bit<T>, float,
                                       std::conditional_t<std::is_integral_v<T>, std::int64_t, T>>;

// Calls f(Type<T>()) with the element type of an input.
template <class C, class F>
__device__ __forceinline__ void on_input(const ChainInput& input, const F& f) {
  on_elements(input.dtype, [&]<class T>(Type<T> type) {
    if constexpr (std::is_same_v<ChainNumber<T>, C>) f(type);
  });
}

// Elements of an input in their dtype. Converting them to numbers waits for the load, so it is done
// later.
template <class C, int kPack>
struct RawPack {
  C words[kPack];
};

template <class C, int kPack>
__device__ __forceinline__ void load_raw(const ChainInput& input, std::int64_t begin, int count,
                                         RawPack<C, kPack>& to) {
  on_input<C>(input, [&]<class T>(Type<T>) {
    const T* const from = static_cast<const T*>(input.data);
    Pack<T, kPack> pack{};
    if (input.repeats)
      pack.at[0] = *from;
    else
      pack = load_pack<kPack>(from, begin, count);
    std::memcpy(&to, &pack, sizeof(pack));
  });
}
// Loads the elements [begin, begin + count) of all inputs of a chain except the first `given`.
template <class C, int kPack, int kInputs>
__device__ __forceinline__ void load_inputs(const Chain& chain, int given, std::int64_t begin,
                                            int count, RawPack<C, kPack> (&inputs)[kInputs]) {
#pragma unroll
  for (int n = 0; n < kInputs; ++n)
    if (n >= given && n < chain.inputs) load_raw(chain.input[n], begin, count, inputs[n]);
}

template <class C, int kPack>
__device__ __forceinline__ void numbers_of(const ChainInput& input, const RawPack<C, kPack>& raw,
                                           C (&to)[kPack]) {
  on_input<C>(input, [&]<class T>(Type<T>) {
    Pack<T, kPack> pack;
    std::memcpy(&pack, &raw, sizeof(pack));
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = static_cast<C>(load_as(pack.at[i]));
  });
  if (!input.repeats) return;
#pragma unroll
  for (int i = 1; i < kPack; ++i) to[i] = to[0];
}

template <class C, int kPack>
__device__ __forceinline__ void round_to(DType dtype, C (&x)[kPack]) {
  if (dtype == DType::kFloat16) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = load_as(store_as<__half>(x[i]));
  } else if (dtype == DType::kBFloat16) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = load_as(store_as<__nv_bfloat16>(x[i]));
  }
}

// x = the result of one step. kAll also includes the operations that only chains with a kernel of
// their own support.
template <bool kAll, class C, int kPack>
__device__ __forceinline__ void compute(const ChainStep& step, const C (&a)[kPack],
                                        const C (&b)[kPack], const C (&c)[kPack], C (&x)[kPack]) {
  constexpr bool kFloating = std::is_floating_point_v<C>;
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = static_cast<C>(f(i));
  };
#define TANDEM_CASE(Name, kSupported, formula)                      \
  case ChainOp::k##Name:                                            \
    if constexpr (kSupported) each([&](int i) { return formula; }); \
    return;
#define TANDEM_ACTIVATION_CASES(Name, kSupported)                                   \
  TANDEM_CASE(Name, kSupported, Name::value(a[i], static_cast<C>(step.numbers[0]))) \
  TANDEM_CASE(Name##Grad, kSupported, Name::gradient(a[i], b[i], static_cast<C>(step.numbers[0])))
#define TANDEM_UNARY_FEW(Name) TANDEM_CASE(Name, true, Name()(a[i]))
#define TANDEM_UNARY_MORE(Name) TANDEM_CASE(Name, kAll&& kFloating, Name()(a[i]))
#define TANDEM_BINARY_FEW(Name) TANDEM_CASE(Name, true, Name()(a[i], b[i]))
#define TANDEM_BINARY_MORE(Name) TANDEM_CASE(Name, kAll, Name()(a[i], b[i]))
#define TANDEM_ACTIVATION_FEW(Name) TANDEM_ACTIVATION_CASES(Name, kFloating)
#define TANDEM_ACTIVATION_MORE(Name) TANDEM_ACTIVATION_CASES(Name, kAll&& kFloating)
  switch (step.op) {
    TANDEM_CASE(Move, true, a[i])
    TANDEM_CASE(Select, true, a[i] != C{0} ? b[i] : c[i])
    TANDEM_CASE(Clip, true, Clip()(a[i], b[i], c[i]))
    TANDEM_CHAIN_UNARY_FEW(TANDEM_UNARY_FEW)
    TANDEM_CHAIN_UNARY_MORE(TANDEM_UNARY_MORE)
    TANDEM_CHAIN_BINARY_FEW(TANDEM_BINARY_FEW)
    TANDEM_CHAIN_BINARY_MORE(TANDEM_BINARY_MORE)
    TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_ACTIVATION_FEW)
    TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_ACTIVATION_MORE)
    TANDEM_CASE(SigmoidCrossEntropy, kAll && kFloating, SigmoidCrossEntropy()(a[i], b[i]))
    TANDEM_CASE(SigmoidCrossEntropyGrad, kAll && kFloating,
                SigmoidCrossEntropyGrad()(a[i], b[i], c[i]))
    default: return;
  }
#undef TANDEM_CASE
#undef TANDEM_ACTIVATION_CASES
#undef TANDEM_UNARY_FEW
#undef TANDEM_UNARY_MORE
#undef TANDEM_BINARY_FEW
#undef TANDEM_BINARY_MORE
#undef TANDEM_ACTIVATION_FEW
#undef TANDEM_ACTIVATION_MORE
}

// x = the result of the chain for loaded inputs. If `given` is not null, it holds the numbers of
// input 0.
template <bool kAll, class C, int kPack, int kInputs>
__device__ __forceinline__ void run_chain(const Chain& chain,
                                          const RawPack<C, kPack> (&inputs)[kInputs],
                                          const std::type_identity_t<C[kPack]>* given,
                                          C (&x)[kPack]) {
  C kept[kChainSlots][kPack];
  const auto fetch = [&](std::uint8_t place, const double* numbers, C(&to)[kPack]) {
    if (place == kInput && given) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = (*given)[i];
    } else if (place >= kInput) {
      RawPack<C, kPack> raw;
      // Registers cannot be indexed at run time, so an unrolled loop selects the input.
#pragma unroll
      for (int n = 0; n < kInputs; ++n)
        if (place == kInput + n) raw = inputs[n];
      numbers_of(chain.input[place - kInput], raw, to);
    } else if (place == kLast) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = x[i];
    } else if (place >= kSlot) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = kept[place - kSlot][i];
    } else if (place >= kNumber) {
      const C number = static_cast<C>(numbers[place - kNumber]);
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = number;
    }
  };
  if (chain.steps == 0) fetch(kInput, nullptr, x);
#pragma unroll 1
  for (int s = 0; s < chain.steps; ++s) {
    const ChainStep& step = chain.step[s];
    C a[kPack] = {}, b[kPack] = {}, c[kPack] = {};
    fetch(step.operands[0], step.numbers, a);
    fetch(step.operands[1], step.numbers, b);
    fetch(step.operands[2], step.numbers, c);
    compute<kAll>(step, a, b, c, x);
    if constexpr (std::is_same_v<C, float>) round_to(step.rounded, x);
    if (step.slot != kNowhere)
#pragma unroll
      for (int i = 0; i < kPack; ++i) kept[step.slot - kSlot][i] = x[i];
  }
}

}  // namespace tandem::cuda
