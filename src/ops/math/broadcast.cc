#include "ops/math/broadcast.h"

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/sum_to_shape.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {

Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b) {
  if (!a.known() || !b.known()) return Shape();
  const int rank = std::max(a.rank(), b.rank());
  Dims sizes = a.rank() >= b.rank() ? a.words() : b.words();
  for (int back = 1; back <= std::min(a.rank(), b.rank()); ++back) {
    const std::int64_t m = a.word(a.rank() - back), n = b.word(b.rank() - back);
    if (!dim::may_broadcast(m, n))
      fail<ShapeError>("[{}] expected shapes that broadcast together, got {} and {}", op,
                       a.to_string(), b.to_string());
    sizes[rank - back] = dim::broadcast(m, n);
  }
  return Shape(sizes);
}

namespace {

// Whether the axes along which `from` is repeated are known only when the graph runs.
bool repeats_unknown(const Shape& from, const Shape& to) {
  const int leading = from.rank() - to.rank();
  for (int axis = 0; axis < to.rank(); ++axis) {
    const std::int64_t repeated = from.word(leading + axis), own = to.word(axis);
    if (own != repeated && own != 1 && !dim::both_known(own, repeated)) return true;
  }
  return false;
}

}  // namespace

Tensor sum_to_shape(const Tensor& gradient, const Shape& shape) {
  const Shape& from = gradient.shape();
  if (from == shape) return gradient;
  if (repeats_unknown(from, shape)) return run(kSumToShape, {&gradient}, SumToShapeAttrs{shape});
  const int leading = from.rank() - shape.rank();
  Dims axes;
  for (int axis = 0; axis < leading; ++axis) axes.push_back(axis);
  bool inner = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.word(axis) != 1 || from.word(leading + axis) == 1) continue;
    axes.push_back(leading + axis);
    inner = true;
  }
  const Tensor sum = reduce_sum(gradient, {.axis = axes, .keepdims = leading == 0});
  return inner && leading > 0 ? reshape(sum, shape) : sum;
}

std::uint32_t repeated_axes(const Shape& from, const Shape& to) {
  const int leading = from.rank() - to.rank();
  std::uint32_t axes = 0;
  for (int axis = 0; axis < from.rank(); ++axis)
    if (axis < leading || (to.word(axis - leading) == 1 && from.word(axis) != 1))
      axes |= 1u << axis;
  return axes;
}

BroadcastPlan::BroadcastPlan(const Shape& result, std::span<const Shape* const> operands) {
  const int count = static_cast<int>(operands.size());
  rank_ = 0;
  for (int axis = 0; axis < result.rank(); ++axis) {
    if (result.word(axis) == 1) continue;
    std::array<bool, kMaxOperands> walks{};
    for (int n = 0; n < count; ++n) {
      const int own = axis - (result.rank() - operands[n]->rank());
      walks[n] = own >= 0 && (*operands[n])[own] != 1;
    }
    // Until the axes are merged, a stride is 1 if the operand has the axis, and 0 if it repeats.
    bool merges = rank_ > 0;
    for (int n = 0; n < count && merges; ++n) merges = strides_[n][rank_ - 1] == (walks[n] ? 1 : 0);
    if (merges) {
      sizes_[rank_ - 1] *= result.word(axis);
      continue;
    }
    sizes_[rank_] = result.word(axis);
    for (int n = 0; n < count; ++n) strides_[n][rank_] = walks[n] ? 1 : 0;
    ++rank_;
  }
  if (rank_ == 0) {
    sizes_[0] = 1;
    rank_ = 1;
  }
  for (int n = 0; n < count; ++n) {
    std::int64_t stride = 1;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      if (strides_[n][axis] == 0) continue;
      strides_[n][axis] = stride;
      stride *= sizes_[axis];
    }
  }
}

}  // namespace tandem
