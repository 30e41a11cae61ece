// Computes several Philox counters in parallel, in 64-bit lanes. Uses intrinsics, because compilers
// do not vectorise products of 32 by 32 bits: they emit full 64-bit products or scalar code.
#include "ops/random/words.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

using FillWords = void (*)(const RandomKey& random_key, std::uint64_t counter, Words& words);

void fill_plain(const RandomKey& random_key, std::uint64_t counter, Words& words) {
  for (int j = 0; j < kColumns; ++j) {
    const auto word = philox(random_key, counter + static_cast<std::uint64_t>(j));
    for (int row = 0; row < 4; ++row) words[row][j] = word[static_cast<std::size_t>(row)];
  }
}

#if defined(__x86_64__)

// The same as philox() for four counters at a time. The words are the low halves of the lanes; no
// step moves bits of the high halves to the low ones.
__attribute__((target("avx2"))) void fill_avx2(const RandomKey& random_key, std::uint64_t counter,
                                               Words& words) {
  const __m256i m0 = _mm256_set1_epi64x(kPhiloxM0), m1 = _mm256_set1_epi64x(kPhiloxM1);
  const __m256i low_halves = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  for (int j = 0; j < kColumns; j += 4) {
    const PhiloxState start(random_key, counter + static_cast<std::uint64_t>(j));
    __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x(start.c0), _mm256_set_epi64x(3, 2, 1, 0));
    __m256i c1 = _mm256_set1_epi64x(start.c1), c2 = _mm256_set1_epi64x(start.c2),
            c3 = _mm256_set1_epi64x(start.c3);
    std::uint32_t k0 = start.k0, k1 = start.k1;
    for (int round = 0; round < 10; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
      const __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
      c0 =
          _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
      c2 =
          _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
      c1 = p1;
      c3 = p0;
    }
    const __m256i rows[] = {c0, c1, c2, c3};
    for (int row = 0; row < 4; ++row)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(&words[row][j]),
                       _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(rows[row], low_halves)));
  }
}

// The same for all sixteen counters at once, eight per vector.
__attribute__((target("avx512f"))) void fill_avx512(const RandomKey& random_key,
                                                    std::uint64_t counter, Words& words) {
  constexpr __mmask8 kAll = 0xff;  // the versions without a mask give wrong warnings in GCC 12
  constexpr int kXorOfThree = 0x96;
  const __m512i m0 = _mm512_set1_epi64(kPhiloxM0), m1 = _mm512_set1_epi64(kPhiloxM1);
  const PhiloxState start(random_key, counter);
  __m512i c0[2], c1[2], c2[2], c3[2];
  for (int v = 0; v < 2; ++v) {
    c0[v] = _mm512_add_epi64(_mm512_set1_epi64(start.c0 + 8u * static_cast<unsigned>(v)),
                             _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    c1[v] = _mm512_set1_epi64(start.c1);
    c2[v] = _mm512_set1_epi64(start.c2);
    c3[v] = _mm512_set1_epi64(start.c3);
  }
  std::uint32_t k0 = start.k0, k1 = start.k1;
  for (int round = 0; round < 10; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
    const __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);
    for (int v = 0; v < 2; ++v) {
      const __m512i p0 = _mm512_maskz_mul_epu32(kAll, c0[v], m0);
      const __m512i p1 = _mm512_maskz_mul_epu32(kAll, c2[v], m1);
      c0[v] = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAll, p1, 32), c1[v], key0,
                                        kXorOfThree);
      c2[v] = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAll, p0, 32), c3[v], key1,
                                        kXorOfThree);
      c1[v] = p1;
      c3[v] = p0;
    }
  }
  for (int v = 0; v < 2; ++v) {
    const __m512i rows[] = {c0[v], c1[v], c2[v], c3[v]};
    for (int row = 0; row < 4; ++row)
      _mm512_mask_cvtepi64_storeu_epi32(&words[row][8 * v], kAll, rows[row]);
  }
}

FillWords best_fill() {
  return __builtin_cpu_supports("avx512f") ? fill_avx512
         : __builtin_cpu_supports("avx2")  ? fill_avx2
                                           : fill_plain;
}

#else

FillWords best_fill() { return fill_plain; }

#endif

}  // namespace

void fill_words(const RandomKey& random_key, std::int64_t block, Words& words) {
  static const FillWords fill = best_fill();
  fill(random_key, static_cast<std::uint64_t>(block) * kColumns, words);
}

}  // namespace tandem
