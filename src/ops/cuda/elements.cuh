// Elements on a GPU: the types behind the dtypes, loads of several at once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/cuda/launch.h"
#include "tandem/errors.h"

namespace tandem::cuda {

template <class T>
inline constexpr bool is_16_bit = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// The type that arithmetic on elements of type T is done in.
template <class T>
using ComputeOf = std::conditional_t<is_16_bit<T>, float, T>;

template <class T>
__device__ __forceinline__ ComputeOf<T> load_as(T value) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(value);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __bfloat162float(value);
  else
    return value;
}

template <class T, class V>
__device__ __forceinline__ T store_as(V value) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

// A type as an argument. (op/dtype_switch.h is for the host: it formats texts in ways that CUDA's
// compiler does not take.)
template <class T>
struct Type {
  using type = T;
};

// Call f(Type<T>()) with the type behind a dtype: floating ones; those and integers; all.
template <class F>
void switch_floating(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32: return f(Type<float>());
    case DType::kFloat64: return f(Type<double>());
    case DType::kFloat16: return f(Type<__half>());
    case DType::kBFloat16: return f(Type<__nv_bfloat16>());
    default: throw InternalError("[cuda] a dtype that the kernel is not for");
  }
}
template <class F>
void switch_numeric(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kInt32: return f(Type<std::int32_t>());
    case DType::kInt64: return f(Type<std::int64_t>());
    case DType::kUInt8: return f(Type<std::uint8_t>());
    default: return switch_floating(dtype, f);
  }
}
template <class F>
void switch_any(DType dtype, const F& f) {
  if (dtype == DType::kBool) return f(Type<bool>());
  switch_numeric(dtype, f);
}

// Call f(Type<U>()) with a type of so many bytes, 1 to 16, for what only moves elements.
template <class F>
void switch_bytes(std::size_t bytes, const F& f) {
  switch (bytes) {
    case 1: return f(Type<std::uint8_t>());
    case 2: return f(Type<std::uint16_t>());
    case 4: return f(Type<std::uint32_t>());
    case 8: return f(Type<std::uint64_t>());
    default: return f(Type<uint4>());
  }
}

// A number beside tensors of type T, as the host's kernels take it: an element first, then in the
// type of arithmetic. REQUIRES: the shape rule has found that T holds it.
template <class T>
ComputeOf<T> rounded_to(double number) {
  if constexpr (std::is_same_v<T, __half>)
    return static_cast<float>(Half(static_cast<float>(number)));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return static_cast<float>(BFloat16(static_cast<float>(number)));
  else
    return static_cast<T>(number);
}

// Elements that a thread takes at a time: 16 bytes of the widest type involved.
template <class... T>
inline constexpr int kPackOf = 16 / static_cast<int>(std::max({sizeof(T)...}));

// f(Type<T>, a constant with the elements that a thread takes at a time): one where packs do not
// make up the columns.
template <class F>
void switch_packs(DType dtype, std::int64_t columns, const F& f) {
  switch_floating(dtype, [&]<class T>(Type<T> type) {
    if (columns % kPackOf<T> == 0)
      f(type, std::integral_constant<int, kPackOf<T>>());
    else
      f(type, std::integral_constant<int, 1>());
  });
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// Whether packs may be read from, or written to, `memory`: slices begin anywhere.
template <int kCount, class T>
__device__ __forceinline__ bool takes_packs(const T* memory) {
  if constexpr (kCount == 1) return true;
  return reinterpret_cast<std::uintptr_t>(memory) % (sizeof(T) * kCount) == 0;
}

// Elements [begin, begin + count) of `from`; count is less than kCount only at the end.
template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* from, std::int64_t begin, int count) {
  if (count == kCount && takes_packs<kCount>(from))
    return *reinterpret_cast<const Pack<T, kCount>*>(from + begin);
  Pack<T, kCount> pack{};  // arithmetic goes over all of it
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) pack.at[i] = from[begin + i];
  return pack;
}
template <class P>
__device__ __forceinline__ void store_whole(P* to, const P& pack) {
#ifdef __CUDA_ARCH__
  // Said outright: of a plain store nvcc makes one for each element where it knows `count`, for
  // then both arms below store the same.
  if constexpr (sizeof(P) == sizeof(uint4)) {
    uint4 words;
    std::memcpy(&words, &pack, sizeof(words));
    __stwb(reinterpret_cast<uint4*>(to), words);
    return;
  }
#endif
  *to = pack;
}
template <int kCount, class T>
__device__ __forceinline__ void store_pack(T* to, std::int64_t begin, int count,
                                           const Pack<T, kCount>& pack) {
  if (count == kCount && takes_packs<kCount>(to)) {
    store_whole(reinterpret_cast<Pack<T, kCount>*>(to + begin), pack);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) to[begin + i] = pack.at[i];
}

// f(i) for i = begin, begin + step, ... below `end`. With the number of steps known and of 32 bits,
// nvcc lets the loads of several steps be under way at once.
template <int kUnroll, class F>
__device__ __forceinline__ void for_steps(std::int64_t begin, std::int64_t end, std::int64_t step,
                                          const F& f) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  for (std::int64_t left = end - begin; left > 0; left = end - begin) {
    const int steps = left <= kMost ? (static_cast<int>(left) - 1) / static_cast<int>(step) + 1
                                    : static_cast<int>(kMost) / static_cast<int>(step);
#pragma unroll kUnroll
    for (int n = 0; n < steps; ++n, begin += step) f(begin);
  }
}

// loop(), twice in the code: once for when all the memory that it reads and writes takes packs, so
// that its loads have no branch between them that keeps them from being under way at once.
// each(f) calls f with all that memory.
template <int kPack, class Each, class F>
__device__ __forceinline__ void in_packs(const Each& each, const F& loop) {
  bool packs = true;
  each([&](const auto* memory) { packs = packs && takes_packs<kPack>(memory); });
  if (!packs) return loop();
#ifdef __CUDA_ARCH__
  // By itself nvcc knows of all together, but not of each.
  each([](const auto* memory) { __builtin_assume(takes_packs<kPack>(memory)); });
#endif
  loop();
}

// The pack of the calling thread: where it begins and how many elements it has; 0 past the end.
template <int kCount>
struct MyPack {
  std::int64_t begin;
  int count;
  __device__ __forceinline__ explicit MyPack(std::int64_t size)
      : begin((static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount),
        count(static_cast<int>(begin >= size           ? 0
                               : size - begin < kCount ? size - begin
                                                       : kCount)) {}
};

}  // namespace tandem::cuda
