#include "core/widen.h"

#include <algorithm>

#include "core/bfloat16_step.h"
#include "core/multiversion.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

template <class From, class To>
TANDEM_MULTIVERSION void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
}

#if defined(__x86_64__)
// Each instruction converts 8 or 16 numbers. The last ones are copied, so that all are converted by
// the same instruction. Where there are vectors of 512 bits, the next loop will load such, and
// would wait for two smaller stores: hence the versions for 16 numbers.
#define TANDEM_CONVERSION(Name, isa, From, To, kStep, convert_step)                      \
  __attribute__((target(isa))) void Name(const From* from, To* to, std::int64_t count) { \
    const From* end = from + count / kStep * kStep;                                      \
    for (; from != end; from += kStep, to += kStep) convert_step(from, to);              \
    const std::int64_t rest = count % kStep;                                             \
    if (rest == 0) return;                                                               \
    alignas(64) From padded[kStep] = {};                                                 \
    alignas(64) To converted[kStep];                                                     \
    std::copy_n(from, rest, padded);                                                     \
    convert_step(padded, converted);                                                     \
    std::copy_n(converted, rest, to);                                                    \
  }

// The versions without a mask give wrong warnings in GCC 12.
constexpr __mmask16 kAll = 0xffff;
#define TANDEM_WIDEN_8(x, y) \
  _mm256_storeu_ps(y, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))))
#define TANDEM_WIDEN_16(x, y) \
  _mm512_storeu_ps(           \
      y, _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))))
#define TANDEM_NARROW_8(x, y)                     \
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), \
                   _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT))
#define TANDEM_NARROW_16(x, y)                       \
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), \
                      _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT))

TANDEM_CONVERSION(widen_8, "avx2,f16c", Half, float, 8, TANDEM_WIDEN_8)
TANDEM_CONVERSION(widen_16, "avx512f", Half, float, 16, TANDEM_WIDEN_16)
TANDEM_CONVERSION(narrow_8, "avx2,f16c", float, Half, 8, TANDEM_NARROW_8)
TANDEM_CONVERSION(narrow_16, "avx512f", float, Half, 16, TANDEM_NARROW_16)

// The same rounding as BFloat16's. Takes the upper halves of two vectors by one instruction; GCC
// shifts each, and takes the lower halves.
__attribute__((target("avx512f,avx512bw"))) inline __m512i rounded_to_upper_half(const float* x) {
  const __m512 value = _mm512_loadu_ps(x);
  const __m512i word = _mm512_castps_si512(value), one = _mm512_set1_epi32(1);
  const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(kAll, word, 16), one);
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, nan, word, _mm512_set1_epi32(0x400000));
}
__attribute__((target("avx512f,avx512bw"))) inline void narrow_step_32(const float* x,
                                                                       BFloat16* y) {
  alignas(64) static constexpr std::uint16_t kUpper[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i upper = _mm512_load_si512(kUpper);
  _mm512_storeu_si512(
      y, _mm512_permutex2var_epi16(rounded_to_upper_half(x), upper, rounded_to_upper_half(x + 16)));
}
TANDEM_CONVERSION(narrow_32, "avx512f,avx512bw", float, BFloat16, 32, narrow_step_32)

TANDEM_CONVERSION(narrow_in_registers, TANDEM_BFLOAT16_ISA, float, BFloat16, 32, narrow_step)

using NarrowBFloat16 = void (*)(const float* from, BFloat16* to, std::int64_t count);
NarrowBFloat16 fastest_narrow() {
  if (has_bfloat16_instructions()) return narrow_in_registers;
  const bool vectors = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return vectors ? narrow_32 : convert<float, BFloat16>;
}

// How many numbers an instruction converts; 0 if there is none. Processors with AVX2 have F16C, for
// which clang 14 cannot ask.
int numbers_per_instruction() {
  static const int numbers = __builtin_cpu_supports("avx512f") ? 16
                             : __builtin_cpu_supports("avx2")  ? 8
                                                               : 0;
  return numbers;
}
#endif

}  // namespace

#if defined(__x86_64__)
bool has_bfloat16_instructions() {
  // The parts of x86-64-v4 that a processor or a virtual machine could lack; clang 14 cannot ask
  // for the whole.
  static const bool supported =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  return supported;
}
void narrow_32_exactly(const float* from, BFloat16* to) { narrow_32(from, to, 32); }
#endif

void widen(const Half* from, float* to, std::int64_t count) {
#if defined(__x86_64__)
  const int numbers = numbers_per_instruction();
  if (numbers == 16) return widen_16(from, to, count);
  if (numbers == 8) return widen_8(from, to, count);
#endif
  convert(from, to, count);
}
void narrow(const float* from, Half* to, std::int64_t count) {
#if defined(__x86_64__)
  const int numbers = numbers_per_instruction();
  if (numbers == 16) return narrow_16(from, to, count);
  if (numbers == 8) return narrow_8(from, to, count);
#endif
  convert(from, to, count);
}
void widen(const BFloat16* from, float* to, std::int64_t count) { convert(from, to, count); }
void narrow(const float* from, BFloat16* to, std::int64_t count) {
#if defined(__x86_64__)
  static const NarrowBFloat16 fastest = fastest_narrow();
  fastest(from, to, count);
#else
  convert(from, to, count);
#endif
}

}  // namespace tandem
