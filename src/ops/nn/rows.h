// Reductions over contiguous rows that vectorise: sums are kept in lanes and joined in a fixed order.
// Inlined, with their terms, into their callers (functions with TANDEM_CLONES).
#pragma once

#include <cstdint>
#include <limits>

namespace tandem {

inline constexpr int kLanes = 16;

// The sum of term(j) for j in [0, count).
template <class A, class Term>
[[gnu::always_inline]] inline A row_sum(std::int64_t count, const Term& term) {
  A lanes[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(j + l);
  A sum = A(0);
  for (; j < count; ++j) sum += term(j);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return sum + lanes[0];
}

// The largest term(j) for j in [0, count), minus infinity where there is none; NaN is passed over.
template <class A, class Term>
[[gnu::always_inline]] inline A row_max(std::int64_t count, const Term& term) {
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  A lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = kLowest;
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const A value = term(j + l);
      lanes[l] = value > lanes[l] ? value : lanes[l];
    }
  A best = kLowest;
  for (; j < count; ++j) {
    const A value = term(j);
    best = value > best ? value : best;
  }
  for (int l = 0; l < kLanes; ++l) best = lanes[l] > best ? lanes[l] : best;
  return best;
}

}  // namespace tandem
