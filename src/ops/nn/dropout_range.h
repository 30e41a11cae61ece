// Dropout of a range of elements, for CPU kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/multiversion.h"
#include "ops/math/elementwise.h"
#include "ops/nn/dropout_words.h"

namespace tandem {

// y = 0 or scaled x, for the elements [begin, end) of the global tensor. x and y point to element
// `begin`; they may be equal.
template <class T>
TANDEM_INLINED void dropout_range(const RandomKey& random_key, std::uint32_t threshold,
                                  double scale, const T* x, T* y, std::int64_t begin,
                                  std::int64_t end) {
  using C = Compute<T>;
  constexpr std::int64_t kBlock = kDropoutBlock;
  alignas(64) Words words;
  const C factor = static_cast<C>(scale);
  for (std::int64_t block = begin / kBlock; block * kBlock < end; ++block) {
    fill_words(random_key, block, words);
    const std::int64_t first = block * kBlock;
    const std::int64_t from = std::max(begin, first), to = std::min(end, first + kBlock);
    const std::uint32_t* word = &words[0][0] + (from - first);
    const T* in = x + (from - begin);
    T* out = y + (from - begin);
    for (std::int64_t i = 0; i < to - from; ++i)
      out[i] = store_as<T>(word[i] >= threshold ? static_cast<C>(in[i]) * factor : C(0));
  }
}

}  // namespace tandem
