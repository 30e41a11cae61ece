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
  /// The whole axis.
  Slice() = default;
  /// From `first` to before `end`, of which None is a default: `Slice(None, None, 2)`. As
  /// torch::indexing::Slice.
  Slice(std::optional<Dim> first, std::optional<Dim> end = {}, std::int64_t distance = 1)
      : start(first), stop(end), step(distance) {}

  std::optional<Dim> start{};  ///< first position
  std::optional<Dim> stop{};   ///< end of the range, exclusive
  std::int64_t step = 1;       ///< distance between positions; not 0
};

/// The type of Ellipsis.
struct EllipsisIndex {};
/// As Python's `...` among indices: all axes that the others leave, `x[{Ellipsis, 0}]`. As
/// torch::indexing::Ellipsis.
inline constexpr EllipsisIndex Ellipsis;

/// Argument of Tensor::operator() for one axis: a position, which removes the axis, or a Slice; or
/// None, for a new axis of size 1 there; or Ellipsis, for all axes that the others leave.
class AxisIndex {
 public:
  /// @{
  /// A position; negative ones count from the end.
  template <std::integral Integer>
  AxisIndex(Integer position)  // NOLINT: implicit
      : slice_(Dim(static_cast<std::int64_t>(position))), kind_(Kind::kPosition) {}
  AxisIndex(const Dim& position)  // NOLINT: implicit
      : slice_(position), kind_(Kind::kPosition) {}
  /// @}
  /// A range.
  AxisIndex(const Slice& slice) : slice_(slice) {}  // NOLINT: implicit
  /// A new axis, as numpy.newaxis and torch::indexing::None.
  AxisIndex(std::nullopt_t) : kind_(Kind::kNew) {}  // NOLINT: implicit
  /// All axes that the other indices leave.
  AxisIndex(EllipsisIndex) : kind_(Kind::kEllipsis) {}  // NOLINT: implicit
  /// The same in quotes, `x.index({"...", 0})`. Throws InvalidArgumentError for another text. As
  /// torch::indexing::TensorIndex.
  AxisIndex(const char* dots);                                // NOLINT: implicit
  bool single() const { return kind_ == Kind::kPosition; }    ///< whether it is a position
  bool inserted() const { return kind_ == Kind::kNew; }       ///< whether it is a new axis
  bool ellipsis() const { return kind_ == Kind::kEllipsis; }  ///< whether it is an Ellipsis
  /// The position. REQUIRES: single().
  Dim position() const { return *slice_.start; }  // REQUIRES: single()
  const Slice& slice() const { return slice_; }   ///< the range

 private:
  enum class Kind : std::uint8_t { kRange, kPosition, kNew, kEllipsis };
  Slice slice_;
  Kind kind_ = Kind::kRange;
};

}  // namespace tandem
