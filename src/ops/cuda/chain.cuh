// Interprets the code of a chain (chain.h) on the GPU.
#pragma once

#include "ops/cuda/chain.h"
#include "ops/cuda/elements.cuh"
#include "ops/formula/activations.h"
#include "ops/formula/functions.h"

namespace tandem::cuda {

// Elements of an input in their dtype. Converting them to numbers waits for the load, so it is done
// later.
template <int kPack>
struct RawPack {
  std::uint32_t words[kPack];
};

template <class U, int kPack>
__device__ __forceinline__ void load_raw_as(const ChainInput& input, std::int64_t begin, int count,
                                            RawPack<kPack>& to) {
  const U* const from = static_cast<const U*>(input.data);
  Pack<U, kPack> pack{};
  if (input.repeats)
    pack.at[0] = *from;
  else
    pack = load_pack<kPack>(from, begin, count);
  std::memcpy(&to, &pack, sizeof(pack));
}
template <int kPack>
__device__ __forceinline__ void load_raw(const ChainInput& input, std::int64_t begin, int count,
                                         RawPack<kPack>& to) {
  switch (input.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16: return load_raw_as<std::uint16_t>(input, begin, count, to);
    case DType::kBool: return load_raw_as<std::uint8_t>(input, begin, count, to);
    default: return load_raw_as<std::uint32_t>(input, begin, count, to);
  }
}
// Loads the elements [begin, begin + count) of all inputs of a chain except the first `given`.
template <int kPack, int kInputs>
__device__ __forceinline__ void load_inputs(const Chain& chain, int given, std::int64_t begin,
                                            int count, RawPack<kPack> (&inputs)[kInputs]) {
#pragma unroll
  for (int n = 0; n < kInputs; ++n)
    if (n >= given && n < chain.inputs) load_raw(chain.input[n], begin, count, inputs[n]);
}

template <class T, int kPack>
__device__ __forceinline__ void numbers_as(const RawPack<kPack>& raw, float (&to)[kPack]) {
  Pack<T, kPack> pack;
  std::memcpy(&pack, &raw, sizeof(pack));
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = static_cast<float>(load_as(pack.at[i]));
}
template <int kPack>
__device__ __forceinline__ void numbers_of(const ChainInput& input, const RawPack<kPack>& raw,
                                           float (&to)[kPack]) {
  switch (input.dtype) {
    case DType::kFloat16: numbers_as<__half>(raw, to); break;
    case DType::kBFloat16: numbers_as<__nv_bfloat16>(raw, to); break;
    case DType::kBool: numbers_as<bool>(raw, to); break;
    default: numbers_as<float>(raw, to);
  }
  if (!input.repeats) return;
#pragma unroll
  for (int i = 1; i < kPack; ++i) to[i] = to[0];
}

template <int kPack>
__device__ __forceinline__ void round_to(DType dtype, float (&x)[kPack]) {
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

// x = the result of the chain for loaded inputs. If `given` is not null, it holds the numbers of
// input 0.
template <bool kAll, int kPack, int kInputs>
__device__ __forceinline__ void run_chain(const Chain& chain,
                                          const RawPack<kPack> (&inputs)[kInputs],
                                          const std::type_identity_t<float[kPack]>* given,
                                          float (&x)[kPack]) {
  float kept[kChainSlots][kPack];
  const auto fetch = [&](std::uint8_t place, float number, float(&to)[kPack]) {
    if (place == kInput && given) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) to[i] = (*given)[i];
    } else if (place >= kInput) {
      RawPack<kPack> raw;
      // Registers cannot be indexed at run time, so an unrolled loop selects the input.
#pragma unroll
      for (int n = 0; n < kInputs; ++n)
        if (place == kInput + n) raw = inputs[n];
      numbers_of(chain.input[place - kInput], raw, to);
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
  if (chain.steps == 0) fetch(kInput, 0.0f, x);
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
