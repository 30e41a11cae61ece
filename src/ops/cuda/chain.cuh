// Following the code of a chain (chain.h) on the GPU.
#pragma once

#include "ops/cuda/chain.h"
#include "ops/cuda/functions.cuh"

namespace tandem::cuda {

template <class T, int kPack>
__device__ __forceinline__ void load_input_as(const ChainInput& input, std::int64_t begin,
                                              int count, float (&to)[kPack]) {
  const T* const from = static_cast<const T*>(input.data);
  if (input.repeats) {
    const auto value = static_cast<float>(load_as(*from));
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = value;
    return;
  }
  const auto pack = load_pack<kPack>(from, begin, count);
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = static_cast<float>(load_as(pack.at[i]));
}

// Elements [begin, begin + count) of an input.
template <int kPack>
__device__ __forceinline__ void load_input(const ChainInput& input, std::int64_t begin, int count,
                                           float (&to)[kPack]) {
  switch (input.dtype) {
    case DType::kFloat16: return load_input_as<__half>(input, begin, count, to);
    case DType::kBFloat16: return load_input_as<__nv_bfloat16>(input, begin, count, to);
    case DType::kBool: return load_input_as<bool>(input, begin, count, to);
    default: return load_input_as<float>(input, begin, count, to);
  }
}

template <int kPack>
__device__ __forceinline__ void round_to(DType dtype, float (&x)[kPack]) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (dtype == DType::kFloat16) x[i] = load_as(store_as<__half>(x[i]));
    if (dtype == DType::kBFloat16) x[i] = load_as(store_as<__nv_bfloat16>(x[i]));
  }
}

// x = what the step makes of its operands. kAll: the operations of chains that are kernels of their
// own, too.
template <bool kAll, int kPack>
__device__ __forceinline__ void compute(const ChainStep& step, const float (&a)[kPack],
                                        const float (&b)[kPack], const float (&c)[kPack],
                                        float (&x)[kPack]) {
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = static_cast<float>(f(i));
  };
#define TANDEM_UNARY_CASE(Name) \
  case ChainOp::k##Name:        \
    return each([&](int i) { return Name()(a[i]); });
#define TANDEM_BINARY_CASE(Name) \
  case ChainOp::k##Name:         \
    return each([&](int i) { return Name()(a[i], b[i]); });
#define TANDEM_ACTIVATION_CASES(Name)                                                        \
  case ChainOp::k##Name: return each([&](int i) { return Name::value(a[i], step.number); }); \
  case ChainOp::k##Name##Grad:                                                               \
    return each([&](int i) { return Name::gradient(a[i], b[i], step.number); });
  switch (step.op) {
    case ChainOp::kMove: return each([&](int i) { return a[i]; });
    case ChainOp::kSelect:
      return each([&](int i) { return a[i] != 0.0f ? b[i] : c[i]; });
      TANDEM_CHAIN_UNARY_FEW(TANDEM_UNARY_CASE)
      TANDEM_CHAIN_BINARY_FEW(TANDEM_BINARY_CASE)
      TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_ACTIVATION_CASES)
    default: break;
  }
  if constexpr (kAll) {
    switch (step.op) {
      TANDEM_CHAIN_UNARY_MORE(TANDEM_UNARY_CASE)
      TANDEM_CHAIN_BINARY_MORE(TANDEM_BINARY_CASE)
      TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_ACTIVATION_CASES)
      default: break;
    }
  }
#undef TANDEM_UNARY_CASE
#undef TANDEM_BINARY_CASE
#undef TANDEM_ACTIVATION_CASES
}

// x = the result for elements [begin, begin + count). The first `given` inputs are in `inputs`.
template <bool kAll, int kPack, int kInputs>
__device__ __forceinline__ void run_chain(const Chain& chain, std::int64_t begin, int count,
                                          float (&inputs)[kInputs][kPack], int given,
                                          float (&x)[kPack]) {
#pragma unroll
  for (int n = 0; n < kInputs; ++n)
    if (n >= given && n < chain.inputs) load_input(chain.input[n], begin, count, inputs[n]);
  float kept[kChainSlots][kPack];
  const auto fetch = [&](std::uint8_t place, float number, float(&to)[kPack]) {
    if (place >= kInput) {
      // Registers have no index: each input is asked for by name.
#pragma unroll
      for (int n = 0; n < kInputs; ++n)
        if (place == kInput + n)
#pragma unroll
          for (int i = 0; i < kPack; ++i) to[i] = inputs[n][i];
    } else if (place == kLast) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = x[i];
    } else if (place == kNumber) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = number;
    } else if (place >= kSlot) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = kept[place - kSlot][i];
    }
  };
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = inputs[0][i];
#pragma unroll 1
  for (int s = 0; s < chain.steps; ++s) {
    const ChainStep& step = chain.step[s];
    float a[kPack] = {}, b[kPack] = {}, c[kPack] = {};
    fetch(step.operands[0], step.number, a);
    fetch(step.operands[1], step.number, b);
    if (step.op == ChainOp::kSelect) fetch(step.operands[2], step.number, c);
    compute<kAll>(step, a, b, c, x);
    round_to(step.rounded, x);
    if (step.slot != kNowhere)
#pragma unroll
      for (int i = 0; i < kPack; ++i) kept[step.slot - kSlot][i] = x[i];
  }
}

}  // namespace tandem::cuda
