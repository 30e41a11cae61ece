// Element types of dtypes on a GPU, and loads and stores of several elements at once.
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

// The type in which arithmetic on elements of type T is done.
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

// A type as a function argument. (op/dtype_switch.h does this on the host; nvcc does not compile
// its string formatting.)
template <class T>
struct Type {
  using type = T;
};

// Call f(Type<T>()) with the element type of a dtype: floating dtypes; also integers; all dtypes.
template <class F>
void switch_floating(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32: return f(Type<float>());
    case DType::kFloat64: return f(Type<double>());
    case DType::kFloat16: return f(Type<__half>());
    case DType::kBFloat16: return f(Type<__nv_bfloat16>());
    default: throw InternalError("[cuda] the kernel does not support this dtype");
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

// The same for all dtypes in a kernel.
template <class F>
__device__ __forceinline__ void on_elements(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat64: return f(Type<double>());
    case DType::kFloat16: return f(Type<__half>());
    case DType::kBFloat16: return f(Type<__nv_bfloat16>());
    case DType::kInt32: return f(Type<std::int32_t>());
    case DType::kInt64: return f(Type<std::int64_t>());
    case DType::kUInt8: return f(Type<std::uint8_t>());
    case DType::kBool: return f(Type<bool>());
    default: return f(Type<float>());
  }
}

// Converts a number to an element, as Cast does.
template <class T, class C>
__device__ __forceinline__ T element_of(C number) {
  if constexpr (std::is_same_v<T, bool>)
    return number != C{0};
  else if constexpr (std::is_same_v<T, std::uint8_t> && std::is_floating_point_v<C>)
    return static_cast<T>(static_cast<std::int32_t>(number));  // wraps, as from int32
  else
    return store_as<T>(number);
}

// Calls f(Type<U>()) with a type of 1 to 16 bytes, for kernels that only move elements.
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

// A scalar operand of an operation on tensors of type T. As on the host, it is converted to an
// element and then to the compute type. REQUIRES: the shape rule has checked that T holds it.
template <class T>
ComputeOf<T> rounded_to(double number) {
  if constexpr (std::is_same_v<T, __half>)
    return static_cast<float>(Half(static_cast<float>(number)));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return static_cast<float>(BFloat16(static_cast<float>(number)));
  else
    return static_cast<T>(number);
}

// Elements per thread and access: 16 bytes of the widest type involved.
template <class... T>
inline constexpr int kPackOf = 16 / static_cast<int>(std::max({sizeof(T)...}));

// Calls f(Type<T>, pack), where `pack` is a constant with the elements per access: 1 if the columns
// are not a multiple of a pack.
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

// Whether `memory` is aligned for packs. Slices may begin anywhere.
template <int kCount, class T>
__device__ __forceinline__ bool takes_packs(const T* memory) {
  if constexpr (kCount == 1) return true;
  return reinterpret_cast<std::uintptr_t>(memory) % (sizeof(T) * kCount) == 0;
}

// Loads the elements [begin, begin + count) of `from`. `count` is less than kCount only at the end.
template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* from, std::int64_t begin, int count) {
  if (count == kCount && takes_packs<kCount>(from))
    return *reinterpret_cast<const Pack<T, kCount>*>(from + begin);
  Pack<T, kCount> pack{};  // initialised, because arithmetic uses all of its elements
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) pack.at[i] = from[begin + i];
  return pack;
}
template <class P>
__device__ __forceinline__ void store_whole(P* to, const P& pack) {
#ifdef __CUDA_ARCH__
  // Stores an explicit uint4. If nvcc knows `count`, both branches below store the same, and it
  // would replace a plain store of a pack by one store per element.
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

// Calls f(i) for i = begin, begin + step, ... below `end`. The number of steps is computed first
// and has 32 bits, so that nvcc overlaps the loads of several steps.
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

// Calls loop(), which is compiled twice: one copy is for memory that is aligned for packs, without
// branches between the loads, so that they overlap. each(f) calls f with each pointer that the loop
// reads or writes.
template <int kPack, class Each, class F>
__device__ __forceinline__ void in_packs(const Each& each, const F& loop) {
  bool packs = true;
  each([&](const auto* memory) { packs = packs && takes_packs<kPack>(memory); });
  if (!packs) return loop();
#ifdef __CUDA_ARCH__
  // nvcc does not derive the alignment of each pointer from the condition on all of them.
  each([](const auto* memory) { __builtin_assume(takes_packs<kPack>(memory)); });
#endif
  loop();
}

// The calling thread's pack: its first element and its number of elements, 0 past the end.
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

// Stores numbers as the thread's elements of `to`.
template <int kCount, class C>
__device__ __forceinline__ void store_numbers(void* to, DType dtype, const MyPack<kCount>& mine,
                                              const C (&numbers)[kCount]) {
  on_elements(dtype, [&]<class T>(Type<T>) {
    Pack<T, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.at[i] = element_of<T>(numbers[i]);
    store_pack(static_cast<T*>(to), mine.begin, mine.count, pack);
  });
}

}  // namespace tandem::cuda
