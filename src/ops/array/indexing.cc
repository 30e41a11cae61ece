// Tensor indexing by positions and slices of the leading axes.
#include <algorithm>

#include "core/dim.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// The elements of an axis that a slice selects: `count` elements, `step` apart.
struct ResolvedSlice {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;

  // The distance of the last element from the first one; negative if there are no elements.
  std::int64_t length() const {
    return dim::product(dim::difference(count, 1), step < 0 ? -step : step);
  }
};

// `position`, counted from the start. An unknown one may be negative in a run, and then counts from
// the end.
std::int64_t from_start(std::int64_t position, std::int64_t size) {
  const std::int64_t is_negative = dim::min(1, dim::max(0, dim::difference(0, position)));
  return dim::sum(position, dim::product(is_negative, size));
}

// Like Python's slice.indices().
ResolvedSlice resolve_slice(const Slice& slice, std::int64_t size) {
  if (slice.step == 0) throw InvalidArgumentError("[at] expected a step other than 0, got 0");
  const bool forward = slice.step > 0;
  const auto bound = [&](const std::optional<Dim>& given, std::int64_t otherwise) {
    if (!given) return otherwise;
    const std::int64_t position = from_start(given->word(), size);
    return dim::min(dim::max(position, forward ? 0 : -1),
                    forward ? size : dim::difference(size, 1));
  };
  const std::int64_t first = bound(slice.start, forward ? 0 : dim::difference(size, 1));
  const std::int64_t stop = bound(slice.stop, forward ? size : -1);
  const std::int64_t distance =
      forward ? dim::difference(stop, first) : dim::difference(first, stop);
  const std::int64_t stride = forward ? slice.step : -slice.step;
  return {first, dim::max(0, dim::ceil_quotient(distance, stride)), slice.step};
}

bool takes_all(const Slice& slice) { return !slice.start && !slice.stop && slice.step == 1; }

ResolvedSlice slice_at(Dim index, const Tensor& x, int axis) {
  const std::int64_t position = index.word();
  const std::int64_t size = x.shape().word(axis);
  const std::int64_t first = from_start(position, size);
  if (!dim::may_be_at_most(0, first) || !dim::may_be_at_most(dim::sum(first, 1), size))
    fail<InvalidArgumentError>(
        "[at] expected a position of [{}, {}) for axis {} of shape {}, got {}",
        dim::text(dim::product(-1, size)), dim::text(size), axis, x.shape().to_string(),
        dim::text(position));
  return {first, 1, 1};
}

// Selects every `step`-th element of an axis, which begins and ends with a selected one.
Tensor take_every_nth(const Tensor& x, int axis, const ResolvedSlice& taken) {
  if (taken.step == -1) return reverse(x, Dims{axis});
  const std::int64_t from = taken.step < 0 ? dim::max(0, taken.length()) : 0;
  if (dim::is_unknown(taken.count))
    return gather(
        x, range(Dim(taken.count), {.dtype = int64}) * static_cast<double>(taken.step) + Dim(from),
        axis);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < taken.count; ++i) positions.push_back(from + i * taken.step);
  return gather(x, constant(positions), axis);
}

// Tensor::at() without new axes.
Tensor at_axes(const Tensor& whole, std::span<const AxisIndex> indices) {
  if (static_cast<int>(indices.size()) > whole.rank())
    fail<InvalidArgumentError>("[at] expected at most {} indices for shape {}, got {}",
                               whole.rank(), whole.shape().to_string(), indices.size());
  // Leading positions give views.
  auto index = indices.begin();
  Tensor x = whole;
  for (; index != indices.end() && index->single(); ++index) x = x[index->position()];

  Dims begin, size, removed;
  std::vector<std::pair<int, ResolvedSlice>> strided;
  bool cut = false;
  for (int axis = 0; axis < x.rank(); ++axis) {
    begin.push_back(0);
    size.push_back(-1);
    if (index == indices.end()) continue;
    const AxisIndex& wanted = *index++;
    if (!wanted.single() && takes_all(wanted.slice())) continue;
    const ResolvedSlice taken = wanted.single()
                                    ? slice_at(wanted.position(), x, axis)
                                    : resolve_slice(wanted.slice(), x.shape().word(axis));
    cut = true;
    size[axis] = 0;
    if (wanted.single()) removed.push_back(axis);
    if (taken.count == 0) continue;
    if (taken.step == 1) {
      begin[axis] = taken.first;
      size[axis] = taken.count;
      continue;
    }
    const std::int64_t leftmost =
        taken.step > 0 ? taken.first : dim::difference(taken.first, taken.length());
    begin[axis] = dim::max(0, dim::min(leftmost, x.size_word(axis)));
    size[axis] = dim::max(0, dim::sum(taken.length(), 1));
    strided.emplace_back(axis, taken);
  }
  if (cut) x = tandem::slice(x, begin, size);
  for (const auto& [axis, taken] : strided) x = take_every_nth(x, axis, taken);
  return removed.empty() ? x : tandem::squeeze(x, removed);
}

}  // namespace

namespace {

// The indices, with whole axes for an Ellipsis.
std::vector<AxisIndex> without_ellipsis(const Tensor& x, std::span<const AxisIndex> indices) {
  const auto is_one = [](const AxisIndex& index) { return index.ellipsis(); };
  const auto others = std::ranges::count_if(
      indices, [](const AxisIndex& index) { return !index.inserted() && !index.ellipsis(); });
  if (std::ranges::count_if(indices, is_one) > 1)
    throw InvalidArgumentError("[at] expected one Ellipsis, got several");
  std::vector<AxisIndex> all;
  for (const AxisIndex& index : indices)
    if (index.ellipsis())
      all.insert(all.end(), static_cast<std::size_t>(std::max<std::int64_t>(x.rank() - others, 0)),
                 Slice());
    else
      all.push_back(index);
  return all;
}

}  // namespace

AxisIndex::AxisIndex(const char* dots) : kind_(Kind::kEllipsis) {
  if (std::string_view(dots) != "...")
    fail<InvalidArgumentError>(
        "[index] expected a position, a Slice, None, Ellipsis or \"...\", got \"{}\"", dots);
}

Tensor Tensor::at(std::span<const AxisIndex> indices) const {
  if (std::ranges::any_of(indices, &AxisIndex::ellipsis))
    return at(without_ellipsis(*this, indices));
  const auto is_new = [](const AxisIndex& index) { return index.inserted(); };
  if (std::none_of(indices.begin(), indices.end(), is_new)) return at_axes(*this, indices);
  std::vector<AxisIndex> of_axes;
  std::vector<std::int64_t> inserted;  // the places of new axes in the result
  std::int64_t place = 0;
  for (const AxisIndex& index : indices) {
    if (is_new(index))
      inserted.push_back(place);
    else
      of_axes.push_back(index);
    place += index.single() ? 0 : 1;
  }
  Tensor x = of_axes.empty() ? *this : at_axes(*this, of_axes);
  for (const std::int64_t axis : inserted) x = expand_dims(x, axis);
  return x;
}

}  // namespace tandem
