// Vectorised reductions over contiguous rows. Sums are kept in lanes and combined in a fixed order.
// Inlined, with their terms, into their callers (loops of run_loop()).
#pragma once

#include <cstdint>
#include <limits>

namespace tandem {

// More lanes than GCC unrolls by itself: unrolling would prevent vectorising the loops over lanes.
inline constexpr int kLanes = 32;

// A sum that is kept in lanes.
template <class A>
class RowSum {
 public:
  // Adds term(j) for j in [0, count). REQUIRES: kLanes divides the counts of all calls but the
  // last.
  template <class Term>
  [[gnu::always_inline]] void add(std::int64_t count, const Term& term) {
    std::int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes_[l] += term(j + l);
    for (; j < count; ++j) rest_ += term(j);
  }
  [[gnu::always_inline]] A total() {
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lanes_[l] += lanes_[l + half];
    return rest_ + lanes_[0];
  }

 private:
  A lanes_[kLanes] = {};
  A rest_ = A(0);
};

// The sum of term(j) for j in [0, count).
template <class A, class Term>
[[gnu::always_inline]] inline A row_sum(std::int64_t count, const Term& term) {
  if (count < kLanes) {
    A sum = A(0);
    for (std::int64_t j = 0; j < count; ++j) sum += term(j);
    return sum;
  }
  RowSum<A> sum;
  sum.add(count, term);
  return sum.total();
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
