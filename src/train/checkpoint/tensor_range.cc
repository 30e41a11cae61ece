#include "train/checkpoint/tensor_range.h"

#include <algorithm>

#include "core/status.h"

namespace tandem {
namespace {

// More slices than any job has ranks. It limits the time that find_gap() takes.
constexpr std::size_t kMaxSlices = 1 << 14;

// The number of the element at `index` of a tensor in a range that is stored row by row.
std::int64_t position(const Dims& index, const TensorRange& in) {
  std::int64_t at = 0;
  for (int axis = 0; axis < index.size(); ++axis)
    at = at * in.shape[axis] + (index[axis] - in.offset[axis]);
  return at;
}

}  // namespace

TensorRange whole(const Shape& shape) {
  TensorRange range{.shape = shape};
  for (int axis = 0; axis < shape.rank(); ++axis) range.offset.push_back(0);
  return range;
}

TensorRange rows_of(const Shape& shape, std::int64_t begin, std::int64_t end) {
  TensorRange range = whole(shape);
  range.offset[0] = begin;
  range.shape.set(0, end - begin);
  return range;
}

std::vector<TensorRange> divide(const Shape& shape, int shards) {
  if (shape.rank() == 0 || shape[0] == 0) return {whole(shape)};
  const std::int64_t count = std::min<std::int64_t>(shards, shape[0]);
  std::vector<TensorRange> ranges;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + shape[0] / count + (i < shape[0] % count ? 1 : 0);
    ranges.push_back(rows_of(shape, begin, end));
    begin = end;
  }
  return ranges;
}

bool within(const TensorRange& range, const Shape& shape) {
  if (range.offset.size() != shape.rank() || range.shape.rank() != shape.rank()) return false;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (range.offset[axis] < 0 || range.shape[axis] < 0 || range.shape[axis] > shape[axis] ||
        range.offset[axis] > shape[axis] - range.shape[axis])
      return false;
  return true;
}

std::optional<TensorRange> intersect(const TensorRange& a, const TensorRange& b) {
  TensorRange common = a;
  for (int axis = 0; axis < a.shape.rank(); ++axis) {
    const std::int64_t begin = std::max(a.offset[axis], b.offset[axis]);
    const std::int64_t end =
        std::min(a.offset[axis] + a.shape[axis], b.offset[axis] + b.shape[axis]);
    if (begin >= end) return std::nullopt;
    common.offset[axis] = begin;
    common.shape.set(axis, end - begin);
  }
  return common;
}

void for_each_run(const TensorRange& range, const TensorRange& from, const TensorRange& to,
                  const VisitRun& visit) {
  // Elements are contiguous along `axis` and the axes after it, if the ranges have all of those.
  int axis = std::max(range.shape.rank() - 1, 0);
  while (axis > 0 && range.shape[axis] == from.shape[axis] && range.shape[axis] == to.shape[axis])
    --axis;
  std::int64_t count = 1, runs = 1;
  for (int i = 0; i < range.shape.rank(); ++i) (i < axis ? runs : count) *= range.shape[i];
  if (count == 0) return;
  Dims index = range.offset;
  for (std::int64_t run = 0; run < runs; ++run) {
    visit(position(index, from), position(index, to), count);
    for (int i = axis - 1; i >= 0 && ++index[i] == range.offset[i] + range.shape[i]; --i)
      index[i] = range.offset[i];
  }
}

std::optional<std::string> find_gap(const std::vector<TensorRange>& slices, const Shape& shape) {
  if (slices.size() > kMaxSlices)
    return fmt::format("has {} slices, expected at most {}", slices.size(), kMaxSlices);
  std::int64_t covered = 0;
  std::vector<const TensorRange*> sorted;
  for (const TensorRange& slice : slices) {
    if (!within(slice, shape))
      return fmt::format("of shape {} has a slice {}", shape.to_string(), text_of(slice));
    const std::int64_t elements = slice.shape.num_elements();
    if (elements > 0) sorted.push_back(&slice);
    covered = std::min(covered + elements, 4 * kMaxElements);  // does not overflow
  }
  const auto first = [](const TensorRange& slice) { return slice.offset[0]; };
  std::sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) {
    return shape.rank() > 0 && first(*a) < first(*b);
  });
  for (std::size_t i = 0; i < sorted.size(); ++i)
    for (std::size_t k = i + 1; k < sorted.size(); ++k) {
      if (shape.rank() > 0 && first(*sorted[k]) >= first(*sorted[i]) + sorted[i]->shape[0]) break;
      if (intersect(*sorted[i], *sorted[k]))
        return fmt::format("has the overlapping slices {} and {}", text_of(*sorted[i]),
                           text_of(*sorted[k]));
    }
  if (covered != shape.num_elements())
    return fmt::format("has slices of {} elements, expected {}", covered, shape.num_elements());
  return std::nullopt;
}

std::string text_of(const TensorRange& range) {
  std::string text = "[";
  for (int axis = 0; axis < range.shape.rank(); ++axis)
    text += fmt::format("{}{}:{}", axis == 0 ? "" : ", ", range.offset[axis],
                        range.offset[axis] + range.shape[axis]);
  return text + "]";
}

}  // namespace tandem
