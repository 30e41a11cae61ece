// Broadcasting, as in NumPy: axes are matched from the last one, and an axis of size 1 (or a
// missing one) is repeated.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "tandem/tensor.h"

namespace tandem {

// The shape that `a` and `b` broadcast to. Unknown ranks give an unknown one. Throws
// InvalidArgumentError "[op] expected shapes that broadcast together, got ...".
Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b);

// For gradients of broadcasting operations: sums `gradient` over the axes along which a tensor of
// `shape` was repeated. Returns `gradient` itself if there are none.
Tensor sum_to_shape(const Tensor& gradient, const Shape& shape);

// The axes of `from` that sum_to_shape() sums over to get `to` (bit i for axis i). REQUIRES: `to`
// broadcasts to `from`.
std::uint32_t repeated_axes(const Shape& from, const Shape& to);

// Strides for reading up to kMaxOperands broadcast operands in the row-major order of the result.
// Adjacent axes with compatible strides in all operands are merged.
class BroadcastPlan {
 public:
  static constexpr int kMaxOperands = 3;
  using Offsets = std::array<std::int64_t, kMaxOperands>;

  // REQUIRES: the operands broadcast to `result`; at most kMaxOperands of them.
  BroadcastPlan(const Shape& result, std::span<const Shape* const> operands);

  // The operand's stride within a run: 1, or 0 if it repeats.
  std::int64_t inner_stride(int operand) const { return strides_[operand][rank_ - 1]; }

  // Calls body(position, offsets, length) for the runs of elements [begin, end) of the result. A
  // run has `length` elements; it begins at `position` in the result and at offsets[i] in operand
  // i.
  template <class Body>
  void for_runs(std::int64_t begin, std::int64_t end, const Body& body) const {
    if (begin >= end) return;
    const std::int64_t inner = sizes_[rank_ - 1];
    std::array<std::int64_t, kMaxRank> index{};
    Offsets offsets{};
    std::int64_t row = begin / inner, column = begin % inner;
    for (int axis = rank_ - 2; axis >= 0; --axis) {
      index[axis] = row % sizes_[axis];
      row /= sizes_[axis];
      for (int n = 0; n < kMaxOperands; ++n) offsets[n] += index[axis] * strides_[n][axis];
    }
    while (begin < end) {
      const std::int64_t length = std::min(inner - column, end - begin);
      Offsets at;
      for (int n = 0; n < kMaxOperands; ++n) at[n] = offsets[n] + column * strides_[n][rank_ - 1];
      body(begin, at, length);
      begin += length;
      column = 0;
      for (int axis = rank_ - 2; axis >= 0; --axis) {
        const bool wraps = ++index[axis] == sizes_[axis];
        for (int n = 0; n < kMaxOperands; ++n)
          offsets[n] += wraps ? strides_[n][axis] * (1 - sizes_[axis]) : strides_[n][axis];
        if (!wraps) break;
        index[axis] = 0;
      }
    }
  }

 private:
  int rank_ = 1;
  std::array<std::int64_t, kMaxRank> sizes_{};
  std::array<std::array<std::int64_t, kMaxRank>, kMaxOperands> strides_{};
};

}  // namespace tandem
