// Padding with elements of the tensor, made of slices.
#include <algorithm>
#include <cctype>

#include "core/dim.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/padding.h"

namespace tandem {

PaddingMode::PaddingMode(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (lower == "constant" || lower == "zeros")
    value_ = kConstant;
  else if (lower == "reflect")
    value_ = kReflect;
  else if (lower == "symmetric")
    value_ = kSymmetric;
  else if (lower == "replicate")
    value_ = kReplicate;
  else if (lower == "circular")
    value_ = kCircular;
  else
    fail<InvalidArgumentError>(
        "[pad] expected mode 'constant', 'reflect', 'symmetric', 'replicate' or 'circular', got "
        "'{}'",
        name);
}

namespace {

using Sides = std::pair<std::int64_t, std::int64_t>;

// `count` elements of `axis` from `begin` on.
Tensor part(const Tensor& x, int axis, std::int64_t begin, std::int64_t count) {
  Dims begins, sizes;
  for (int i = 0; i < x.rank(); ++i) {
    begins.push_back(i == axis ? begin : 0);
    sizes.push_back(i == axis ? count : -1);
  }
  return slice(x, begins, sizes);
}

Tensor reversed(const Tensor& x, int axis) { return reverse(x, {axis}); }

Tensor repeated(const Tensor& x, int axis, std::int64_t times) {
  Dims multiples;
  for (int i = 0; i < x.rank(); ++i) multiples.push_back(i == axis ? times : 1);
  return tile(x, multiples);
}

Tensor padded(const Tensor& x, int axis, const Sides& by, PaddingMode::Value mode) {
  const auto [before, after] = by;
  const std::int64_t size = x.shape().word(axis);
  const std::int64_t most = std::max(before, after);
  const bool fits = mode == PaddingMode::kReflect     ? dim::may_be_at_most(most + 1, size)
                    : mode == PaddingMode::kReplicate ? dim::may_be_at_most(1, size)
                                                      : dim::may_be_at_most(most, size);
  if (!fits)
    fail<InvalidArgumentError>(
        "[pad] expected at least {} elements along axis {} for paddings of {} and {}, got shape {}",
        mode == PaddingMode::kReflect     ? most + 1
        : mode == PaddingMode::kReplicate ? 1
                                          : most,
        axis, before, after, x.shape().to_string());
  const auto from_end = [&](std::int64_t count) { return dim::difference(size, count); };
  Tensor first, last;
  switch (mode) {
    case PaddingMode::kReflect:
      first = reversed(part(x, axis, 1, before), axis);
      last = reversed(part(x, axis, from_end(after + 1), after), axis);
      break;
    case PaddingMode::kSymmetric:
      first = reversed(part(x, axis, 0, before), axis);
      last = reversed(part(x, axis, from_end(after), after), axis);
      break;
    case PaddingMode::kReplicate:
      first = repeated(part(x, axis, 0, 1), axis, before);
      last = repeated(part(x, axis, from_end(1), 1), axis, after);
      break;
    case PaddingMode::kCircular:
      first = part(x, axis, from_end(before), before);
      last = part(x, axis, 0, after);
      break;
    case PaddingMode::kConstant: fail<InternalError>("padding with a constant");
  }
  if (before == 0) return concat({x, last}, axis);
  return after == 0 ? concat({first, x}, axis) : concat({first, x, last}, axis);
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<Sides>& paddings, PaddingMode mode) {
  if (mode.value() == PaddingMode::kConstant) return pad(x, paddings, 0.0);
  if (static_cast<int>(paddings.size()) != x.rank())
    fail<InvalidArgumentError>("[pad] expected one pair of paddings per axis of shape {}, got {}",
                               x.shape().to_string(), paddings.size());
  Tensor result = x;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Sides& sides = paddings[static_cast<std::size_t>(axis)];
    if (std::min(sides.first, sides.second) < 0)
      fail<InvalidArgumentError>("[pad] expected paddings of 0 or more, got {} and {}", sides.first,
                                 sides.second);
    if (sides != Sides{0, 0}) result = padded(result, axis, sides, mode.value());
  }
  return result;
}

Tensor nn::functional::pad(const Tensor& x, const std::vector<std::int64_t>& padding,
                           PaddingMode mode, double value) {
  const std::size_t axes = padding.size() / 2, rank = static_cast<std::size_t>(x.rank());
  if (padding.size() % 2 != 0 || axes > rank)
    fail<InvalidArgumentError>(
        "[pad] expected pairs of numbers for the last axes of shape {}, got {} numbers",
        x.shape().to_string(), padding.size());
  std::vector<Sides> added(rank, {0, 0}), removed(rank, {0, 0});
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t before = padding[2 * i], after = padding[2 * i + 1];
    const std::size_t axis = rank - 1 - i;
    added[axis] = {std::max<std::int64_t>(0, before), std::max<std::int64_t>(0, after)};
    removed[axis] = {std::max<std::int64_t>(0, -before), std::max<std::int64_t>(0, -after)};
  }
  const auto cropped = [&](Tensor y) {
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const auto [first, last] = removed[axis];
      if (first == 0 && last == 0) continue;
      const std::int64_t size = y.shape().word(static_cast<int>(axis));
      if (!dim::may_be_at_most(first + last, size))
        fail<InvalidArgumentError>(
            "[pad] expected at least {} elements along axis {} with its padding, got shape {}",
            first + last, axis, x.shape().to_string());
      y = part(y, static_cast<int>(axis), first, dim::difference(size, first + last));
    }
    return y;
  };
  // As PyTorch: the elements that stay go round.
  if (mode.value() == PaddingMode::kCircular) return tandem::pad(cropped(x), added, mode);
  return cropped(mode.value() == PaddingMode::kConstant ? tandem::pad(x, added, value)
                                                        : tandem::pad(x, added, mode));
}

}  // namespace tandem
