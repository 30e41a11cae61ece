// Element-wise loops on bfloat16 elements, and on operands of which a vectorised formula does not
// hold.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/bfloat16_step.h"
#include "core/multiversion.h"
#include "core/vector_math.h"
#include "core/widen.h"
#include "ops/formula/functions.h"
#include "ops/math/elementwise.h"

namespace tandem {

// The number of elements per chunk: the converted operands stay in the first-level cache.
inline constexpr std::int64_t kFloatChunk = 512;
// The same for loops over arrays that may be larger than the caches. Memory is read and written in
// turns with the arithmetic, and longer turns would wait for it.
inline constexpr std::int64_t kStreamChunk = 128;

// Runs `loop(inputs as float..., result, count)` over chunks of bfloat16 elements. The result is
// float, or bool if `out` is. It may overwrite an input.
template <class Loop, class Out, class... In>
void loop_on_floats(const Loop& loop, Out* out, std::int64_t count, const In*... inputs) {
  alignas(64) float wide[sizeof...(In)][kStreamChunk];
  for (std::int64_t begin = 0; begin < count; begin += kStreamChunk) {
    const std::int64_t size = std::min(kStreamChunk, count - begin);
    int n = 0;
    (widen(inputs + begin, wide[n++], size), ...);
    const auto run = [&](auto* result) {
      int i = 0;
      const float* from[] = {((void)inputs, wide[i++])...};
      [&]<std::size_t... I>(std::index_sequence<I...>) { loop(from[I]..., result, size); }
      (std::index_sequence_for<In...>());
    };
    if constexpr (is_16_bit_floating<Out>) {
      run(wide[0]);
      narrow(wide[0], out + begin, size);
    } else {
      run(out + begin);
    }
  }
}

// Copies elements in their compute type.
template <class T>
void load_floats(const T* from, Compute<T>* to, std::int64_t count) {
  if constexpr (is_16_bit_floating<T>)
    widen(from, to, count);
  else
    std::copy_n(from, count, to);
}

#if defined(__x86_64__)
// As write_rows(). REQUIRES: has_bfloat16_instructions()
template <class Value>
__attribute__((target(TANDEM_BFLOAT16_ISA))) void write_in_registers(BFloat16* out,
                                                                     std::int64_t count,
                                                                     std::int64_t width,
                                                                     Value value) {
  alignas(64) float wide[32];  // in registers: GCC unrolls the loops over it
  for (std::int64_t row = 0; row < count; row += width) {
    const std::int64_t length = std::min(width, count - row);
    std::int64_t j = 0;
    for (; j + 32 <= length; j += 32) {
      for (int i = 0; i < 32; ++i) wide[i] = value(row + j + i, j + i);
      narrow_step(wide, out + row + j);
    }
    if (j == length) continue;
    for (std::int64_t i = j; i < length; ++i) wide[i - j] = value(row + i, i);
    narrow(wide, out + row + j, length - j);
  }
}
#endif

// out[i] = value(i, j) for i in [0, count), in rows of `width`, of which i is element j. value(i,
// j) may read out[i].
template <class T, class Value>
TANDEM_INLINED void write_rows(T* out, std::int64_t count, std::int64_t width, const Value& value) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, BFloat16>)
    if (has_bfloat16_instructions()) return write_in_registers(out, count, width, value);
#endif
  for (std::int64_t row = 0; row < count; row += width) {
    const std::int64_t length = std::min(width, count - row);
    if constexpr (is_16_bit_floating<T>) {
      alignas(64) float wide[kStreamChunk];
      for (std::int64_t j = 0; j < length; j += kStreamChunk) {
        const std::int64_t size = std::min(kStreamChunk, length - j);
        for (std::int64_t i = 0; i < size; ++i) wide[i] = value(row + j + i, j + i);
        narrow(wide, out + row + j, size);
      }
    } else {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < length; ++j) out[row + j] = static_cast<T>(value(row + j, j));
    }
  }
}

// out[i] = value(i) for i in [0, count). value(i) may read out[i].
template <class T, class Value>
TANDEM_INLINED void write_elements(T* out, std::int64_t count, const Value& value) {
  write_rows(out, count, count, [value](std::int64_t i, std::int64_t) { return value(i); });
}

// Element i of an operand, which is an array or a number.
template <class T>
TANDEM_INLINED Compute<T> element_of(const T* x, std::int64_t i) {
  return static_cast<Compute<T>>(x[i]);
}
template <class T>
requires std::is_arithmetic_v<T> TANDEM_INLINED T element_of(T x, std::int64_t) { return x; }

// Specialised for formulas that change only the sign: the same on the bits of 16-bit numbers.
template <class Op>
struct SignOf {};
template <>
struct SignOf<cpu::Neg> {
  struct Bits {
    TANDEM_INLINED std::uint16_t operator()(std::uint16_t x) const {
      return static_cast<std::uint16_t>(x ^ 0x8000u);
    }
  };
};
template <>
struct SignOf<cpu::Abs> {
  struct Bits {
    TANDEM_INLINED std::uint16_t operator()(std::uint16_t x) const {
      return static_cast<std::uint16_t>(x & 0x7fffu);
    }
  };
};
template <class Op>
concept ChangesSign = requires {
  typename SignOf<Op>::Bits;
};

// Specialised for formulas that hold for some floats only: excess(operands) is above 0 for the
// others.
template <class Op>
struct FloatRange {};
struct AngleRange {
  TANDEM_INLINED static std::int32_t excess(float x) {
    // As integers, because a loop over their maximum is fast. NaN exceeds every number.
    return std::bit_cast<std::int32_t>(std::fabs(x)) -
           std::bit_cast<std::int32_t>(vec::kLargestAngle);
  }
};
struct QuotientRange {
  TANDEM_INLINED static std::int32_t excess(float a, float b) {
    return std::fabs(a) <= vec::kLargestQuotient * std::fabs(b) ? 0 : 1;
  }
};
template <>
struct FloatRange<cpu::Sin> : AngleRange {};
template <>
struct FloatRange<cpu::Cos> : AngleRange {};
template <>
struct FloatRange<cpu::FloorMod> : QuotientRange {};
template <>
struct FloatRange<cpu::FloorDiv> : QuotientRange {};

template <class Op>
concept FormulaWithRange = requires {
  FloatRange<Op>::excess;
};
template <class Op, class T>
inline constexpr bool has_float_range = std::is_same_v<T, float>&& FormulaWithRange<Op>;

// Whether the loops of a formula convert chunks of elements to float first. Other loops convert
// BFloat16 elements themselves.
template <class Op, class T>
inline constexpr bool needs_chunks = std::is_same_v<T, BFloat16>&& FormulaWithRange<Op>;

// Formulas whose loops do not vectorise if an operand is a number, because GCC moves conditions on
// the number out of the loop.
template <class Op>
inline constexpr bool needs_tensors = false;
template <>
inline constexpr bool needs_tensors<cpu::Pow> = true;

template <class Op, class... In>
TANDEM_MULTIVERSION static bool all_in_range(std::int64_t count, const In*... inputs) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, FloatRange<Op>::excess(inputs[i]...));
  return largest == 0;
}

// Runs `loop(inputs..., out, count)` of a formula with a FloatRange, and computes the elements for
// which it does not hold in double. `out` may be an input.
template <class Op, class Loop, class... In>
void loop_in_range(const Loop& loop, float* out, std::int64_t count, const In*... inputs) {
  for (std::int64_t begin = 0; begin < count; begin += kFloatChunk) {
    const std::int64_t size = std::min(kFloatChunk, count - begin);
    if (all_in_range<Op>(size, inputs + begin...)) {
      loop(inputs + begin..., out + begin, size);
      continue;
    }
    alignas(64) float result[kFloatChunk];
    loop(inputs + begin..., result, size);
    for (std::int64_t i = 0; i < size; ++i)
      if (FloatRange<Op>::excess(inputs[begin + i]...) > 0)
        result[i] = static_cast<float>(Op()(static_cast<double>(inputs[begin + i])...));
    std::copy(result, result + size, out + begin);
  }
}

}  // namespace tandem
