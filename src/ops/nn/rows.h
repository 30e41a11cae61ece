// Vectorised reductions over contiguous rows. Sums are kept in lanes and combined in a fixed order.
// Inlined, with their terms, into their callers (functions with TANDEM_MULTIVERSION).
#pragma once

#include <cstdint>
#include <limits>

namespace tandem {

// More lanes than GCC unrolls by itself: unrolling would prevent vectorising the loops over lanes.
inline constexpr int kLanes = 32;

// The sum of term(j) for j in [0, count).
template <class A, class Term>
[[gnu::always_inline]] inline A row_sum(std::int64_t count, const Term& term) {
  A sum = A(0);
  std::int64_t j = 0;
  if (count < kLanes) {
    for (; j < count; ++j) sum += term(j);
    return sum;
  }
  A lanes[kLanes] = {};
  for (; j + kLanes <= count; j += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(j + l);
  for (; j < count; ++j) sum += term(j);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return sum + lanes[0];
}

// The largest term(j) for j in [0, count), ignoring NaN. Minus infinity if there is none.
template <class A, class Term>
[[gnu::always_inline]] inline A row_max(std::int64_t count, const Term& term) {
  const auto larger = [](A value, A best) { return value > best ? value : best; };
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  A best = kLowest;
  std::int64_t j = 0;
  if (count < kLanes) {
    for (; j < count; ++j) best = larger(term(j), best);
    return best;
  }
  A lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = kLowest;
  for (; j + kLanes <= count; j += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = larger(term(j + l), lanes[l]);
  for (; j < count; ++j) best = larger(term(j), best);
  for (int l = 0; l < kLanes; ++l) best = larger(lanes[l], best);
  return best;
}

}  // namespace tandem
