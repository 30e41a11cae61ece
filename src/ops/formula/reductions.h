// The formulas of reductions: neutral(), load(element), combine(a, b) and finish(total, number of
// elements). C is the compute type of the elements.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/formula/functions.h"

namespace tandem {
namespace TANDEM_SIDE {

// Combines the elements by `Combine`, beginning with kNeutral.
template <class Combine, int kNeutral>
struct Fold {
  template <class C>
  TANDEM_DEVICE static C neutral() {
    return C{kNeutral};
  }
  template <class C>
  TANDEM_DEVICE static C load(C x) {
    return x;
  }
  template <class C>
  TANDEM_DEVICE static C combine(C a, C b) {
    return Combine()(a, b);
  }
  template <class C>
  TANDEM_DEVICE static C finish(C x, std::int64_t) {
    return x;
  }
};

using Sum = Fold<Add, 0>;
using Prod = Fold<Mul, 1>;
using Any = Fold<LogicalOr, 0>;
using All = Fold<LogicalAnd, 1>;
struct Mean : Sum {
  template <class C>
  TANDEM_DEVICE static C finish(C x, std::int64_t count) {
    return x / static_cast<C>(count);
  }
};
struct EuclideanNorm : Sum {
  // The result has the compute type.
  static constexpr bool kWideResult = true;
  template <class C>
  TANDEM_DEVICE static C load(C x) {
    return x * x;
  }
  template <class C>
  TANDEM_DEVICE static C finish(C x, std::int64_t) {
    return prim::sqrt(x);
  }
};
struct Max : Fold<Maximum, 0> {
  template <class C>
  TANDEM_DEVICE static C neutral() {
    using Limits = std::numeric_limits<C>;
    return std::is_floating_point_v<C> ? -Limits::infinity() : Limits::lowest();
  }
};
struct Min : Fold<Minimum, 0> {
  template <class C>
  TANDEM_DEVICE static C neutral() {
    using Limits = std::numeric_limits<C>;
    return std::is_floating_point_v<C> ? Limits::infinity() : Limits::max();
  }
};

}  // namespace TANDEM_SIDE
}  // namespace tandem
