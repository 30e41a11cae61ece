/// @file
/// Indices of a tensor's axes.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "tandem/dim.h"

namespace tandem {

/// A range of an axis, as Python's start:stop:step. Negative positions count from the end;
/// positions outside the axis are clamped. Defaults: the whole axis in the direction of `step`.
struct Slice {
  std::optional<Dim> start{};  ///< first position
  std::optional<Dim> stop{};   ///< end of the range, exclusive
  std::int64_t step = 1;       ///< distance between positions; not 0
};

/// Argument of Tensor::operator() for one axis: a position, which removes the axis, or a Slice; or
/// None, for a new axis of size 1 there.
class AxisIndex {
 public:
  /// @{
  /// A position; negative ones count from the end.
  template <std::integral Integer>
  AxisIndex(Integer position)  // NOLINT: implicit
      : slice_{.start = Dim(static_cast<std::int64_t>(position))}, single_(true) {}
  AxisIndex(const Dim& position)  // NOLINT: implicit
      : slice_{.start = position}, single_(true) {}
  /// @}
  /// A range.
  AxisIndex(const Slice& slice) : slice_(slice) {}  // NOLINT: implicit
  /// A new axis, as numpy.newaxis and torch::indexing::None.
  AxisIndex(std::nullopt_t) : single_(true) {}  // NOLINT: implicit
  /// Whether it is a position.
  bool single() const { return single_ && slice_.start; }
  bool inserted() const { return single_ && !slice_.start; }  ///< whether it is a new axis
  /// The position. REQUIRES: single().
  Dim position() const { return *slice_.start; }  // REQUIRES: single()
  const Slice& slice() const { return slice_; }   ///< the range

 private:
  Slice slice_;
  bool single_ = false;
};

}  // namespace tandem
