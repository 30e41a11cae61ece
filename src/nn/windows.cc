#include "nn/windows.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/scatter.h"
#include "tandem/volumes.h"

namespace tandem::nn {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string text_of(const Numbers& numbers) {
  std::string text;
  for (const std::int64_t number : numbers)
    text += (text.empty() ? "" : " x ") + std::to_string(number);
  return text;
}

void check(const char* what, const Tensor& x, const Windows& w) {
  const int axes = static_cast<int>(w.size.size());
  if (x.rank() != axes + 2)
    fail<ShapeError>("[{}] expected {} (batch, channels, {}), got shape {}", what,
                     axes == 1   ? "sequences"
                     : axes == 2 ? "images"
                                 : "volumes",
                     axes == 1   ? "positions"
                     : axes == 2 ? "height, width"
                                 : "depth, height, width",
                     x.shape().to_string());
  bool positive = true, half = true;
  for (std::size_t i = 0; i < w.size.size(); ++i) {
    positive = positive && w.size[i] > 0 && w.stride[i] > 0 && w.dilation[i] > 0;
    half = half && w.padding[i] >= 0 && 2 * w.padding[i] <= (w.size[i] - 1) * w.dilation[i] + 1;
  }
  if (!positive)
    fail<InvalidArgumentError>(
        "[{}] expected positive windows, strides and dilations, got {}, {} "
        "and {}",
        what, text_of(w.size), text_of(w.stride), text_of(w.dilation));
  if (!half)
    fail<InvalidArgumentError>("[{}] expected a padding of at most half of the window {}, got {}",
                               what, text_of(w.size), text_of(w.padding));
  if (w.divisor && *w.divisor == 0)
    fail<InvalidArgumentError>("[{}] expected a divisor_override other than 0", what);
}

// The elements that window `i` reaches over, and the number of windows along it.
std::int64_t reach(const Windows& w, std::size_t i) { return (w.size[i] - 1) * w.dilation[i] + 1; }
std::int64_t count_of(const Windows& w, std::size_t i, std::int64_t size) {
  const std::int64_t begun = dim::sum(size, w.padding[i]);
  const std::int64_t room = dim::difference(dim::sum(begun, w.padding[i]), reach(w, i));
  if (!w.ceil) return dim::sum(dim::floor_quotient(room, w.stride[i]), 1);
  return dim::min(dim::sum(dim::ceil_quotient(room, w.stride[i]), 1),
                  dim::ceil_quotient(begun, w.stride[i]));
}

// `x` with elements of `value` around its axes after the batch, so that all windows are complete
// if `complete`.
Tensor surrounded(const Tensor& x, const Windows& w, double value, bool complete) {
  std::vector<std::pair<Dim, Dim>> paddings(static_cast<std::size_t>(x.rank()), {0, 0});
  bool any = false;
  for (std::size_t i = 0; i < w.size.size(); ++i) {
    const int axis = static_cast<int>(i) + 1;
    Dim after = w.padding[i];
    if (complete) {
      const Dim size = x.dim(axis);
      const std::int64_t count = count_of(w, i, size.word());
      const std::int64_t end =
          dim::sum(dim::product(dim::difference(count, 1), w.stride[i]), reach(w, i));
      const std::int64_t beyond =
          dim::max(0, dim::difference(dim::difference(end, size.word()), w.padding[i]));
      after = Dim(beyond);
    }
    paddings[i + 1] = {w.padding[i], after};
    any = any || w.padding[i] > 0 || after.word() != 0;
  }
  return any ? pad(x, paddings, value) : x;
}

using Pool = Tensor (*)(const Tensor& x, const Pool2DOptions& options);

// Pools channels-last `x` over windows without dilation. With `inside`, the padding is left out,
// else there is none.
Tensor pooled(const Tensor& x, const Windows& w, Pool pool, bool inside) {
  const std::size_t axes = w.size.size();
  const auto options = [&](std::size_t rows, std::size_t columns) {
    const auto of = [&](const Numbers& numbers, std::int64_t none) {
      return Pair(rows < axes ? numbers[rows] : none, columns < axes ? numbers[columns] : none);
    };
    return Pool2DOptions{.window = of(w.size, 1),
                         .strides = of(w.stride, 1),
                         .padding = inside ? WindowPadding(of(w.padding, 0)) : WindowPadding(0),
                         .ceil_mode = w.ceil};
  };
  if (axes == 1) return squeeze(pool(expand_dims(x, 1), options(axes, 0)), {1});
  if (axes == 2) return pool(x, options(0, 1));
  const auto triple = [](const Numbers& numbers) {
    return Triple(numbers[0], numbers[1], numbers[2]);
  };
  return (pool == max_pool2d ? max_pool3d : avg_pool3d)(
      x, {.window = triple(w.size),
          .strides = triple(w.stride),
          .padding = inside ? VolumePadding(triple(w.padding)) : VolumePadding(0),
          .ceil_mode = w.ceil});
}

// The batch axis is added if it lacks, and removed again.
template <class Body>
Tensor with_batch(const Tensor& x, std::size_t axes, const Body& body) {
  if (x.rank() != static_cast<int>(axes) + 1) return body(x);
  return squeeze(body(expand_dims(x, 0)), {0});
}

// Window i of `count` along an axis of `size` elements has those of [begin, end): both as int64
// vectors of `count` elements.
struct AdaptiveWindows {
  Tensor begin, end;
  AdaptiveWindows(const Dim& size, const Dim& count) {
    const Tensor numbers = range(count, {.dtype = int64});
    begin = floor_divide(numbers * size, count);
    end = floor_divide((numbers + 1.0) * size + (count - 1), count);
  }
};

// [before, size, after] with the means of `count` windows.
Tensor means(const Tensor& x, const Dim& count) {
  const AdaptiveWindows windows(x.dim(1), count);
  const Tensor at = expand_dims(range(x.dim(1), {.dtype = int64}), 0);
  const Tensor begin = expand_dims(windows.begin, 1), end = expand_dims(windows.end, 1);
  const Tensor inside = logical_and(greater_equal(at, begin), less(at, end));
  return matmul(cast(inside, x.dtype()) / cast(end - begin, x.dtype()), x);
}

// [before, size, after] with the maxima of the elements at each row of `positions`, [count, size].
// The first of equal ones gets the gradient.
Tensor maxima_at(const Tensor& x, const Tensor& positions, const Dim& count, const Dim& size) {
  const Tensor elements = gather(x, reshape(positions, {-1}), 1);
  const Tensor pooled = max_pool2d(reshape(elements, {x.dim(0), count, size, x.dim(2)}),
                                   {.window = Pair(1, size.word())});
  return squeeze(pooled, {2});
}

// The maxima of `count` windows.
Tensor maxima(const Tensor& x, const Dim& count) {
  const AdaptiveWindows windows(x.dim(1), count);
  const Dim most = (x.dim(1) + (count - 1)) / count + 1;  // elements of a window
  const Tensor positions =
      minimum(expand_dims(windows.begin, 1) + expand_dims(range(most, {.dtype = int64}), 0),
              expand_dims(windows.end, 1) - 1.0);
  return maxima_at(x, positions, count, most);
}

// `axis` replaced by f([before, size, after]), which has `count` elements instead of `size`.
template <class F>
Tensor along_axis(const Tensor& x, int axis, const Dim& count, const F& f) {
  Dim before = 1, after = 1;
  Dims shape;
  for (int k = 0; k < x.rank(); ++k) {
    if (k < axis) before *= x.dim(k);
    if (k > axis) after *= x.dim(k);
    shape.push_back(k == axis ? count.word() : x.shape().word(k));
  }
  return reshape(f(reshape(x, {before, x.dim(axis), after})), Shape(shape));
}

// The positions of the elements of `count` windows along an axis with its padding: [count, size].
Tensor positions_of(const Windows& w, std::size_t i, const Dim& count) {
  const auto steps = [](const Dim& many, std::int64_t by) {
    return range(many, {.dtype = int64}) * static_cast<double>(by);
  };
  return expand_dims(steps(count, w.stride[i]), 1) +
         expand_dims(steps(w.size[i], w.dilation[i]), 0);
}

// `x`, whose axes from `first` on windows fit into. Throws ShapeError if one does not.
Tensor with_room(const char* what, const Tensor& given, const Windows& w, int first) {
  Tensor x = given;
  for (std::size_t i = 0; i < w.size.size(); ++i) {
    const int axis = static_cast<int>(i) + first;
    const std::int64_t least =
        std::max(1 - w.padding[i], reach(w, i) - 2 * w.padding[i] - (w.ceil ? w.stride[i] - 1 : 0));
    if (!dim::may_be_at_most(least, x.shape().word(axis)))
      fail<ShapeError>("[{}] expected an axis {} that a window fits into, got shape {}", what, axis,
                       x.shape().to_string());
    x = of_least_size(what, "axes that windows fit into, a shape such as", x, axis, least);
  }
  return x;
}

// The maxima of channels-last `x` over windows with dilation. The last axis first, so that the
// first of equal elements in row-major order gets the gradient.
Tensor dilated_maxima(const char* what, const Tensor& given, const Windows& w) {
  Tensor y =
      surrounded(with_room(what, given, w, 1), w, -std::numeric_limits<double>::infinity(), true);
  for (std::size_t i = w.size.size(); i-- > 0;) {
    const int axis = static_cast<int>(i) + 1;
    const Dim count(count_of(w, i, given.shape().word(axis)));
    const Tensor positions = positions_of(w, i, count);
    y = along_axis(y, axis, count, [&](const Tensor& lines) {
      return maxima_at(lines, positions, count, w.size[i]);
    });
  }
  return y;
}

// The elements of all windows of [batch, channels, axes...]: positions in the axes as one, and
// whether they are in the input; those outside have the position of another element.
struct WindowElements {
  Tensor positions, inside;  // [windows, elements of a window]
  std::vector<Dim> counts;   // windows per axis
  WindowElements(const Tensor& x, const Windows& w)
      : positions(zeros({1, 1}, int64)), inside(ones({1, 1}, bool_)) {
    Dim windows = 1;
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < w.size.size(); ++i) {
      const Dim size = x.dim(static_cast<int>(i) + 2), count(count_of(w, i, size.word()));
      const Tensor at = positions_of(w, i, count) - static_cast<double>(w.padding[i]);
      const Tensor there = logical_and(greater_equal(at, 0.0), less(at, size));
      const Shape outer = {windows, 1, elements, 1}, inner = {1, count, 1, w.size[i]};
      counts.push_back(count);
      const Shape joined = {windows * count, elements * w.size[i]};
      windows *= count;
      positions = reshape(
          reshape(positions, outer) * size + reshape(minimum(maximum(at, 0.0), size - 1), inner),
          joined);
      inside = reshape(logical_and(reshape(inside, outer), reshape(there, inner)), joined);
      elements *= w.size[i];
    }
  }
  // The element of each row at `chosen`, [..., windows].
  Tensor at(const Tensor& of, const Tensor& chosen) const {
    const Dim windows = of.dim(0), elements = of.dim(1);
    return gather(reshape(of, {-1}), chosen + range(windows, {.dtype = int64}) * elements);
  }
};

}  // namespace

Tensor channels_last(const Tensor& x) {
  Dims order{0};
  for (int axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  return transpose(x, order);
}
Tensor channels_first(const Tensor& x) {
  Dims order{0, x.rank() - 1};
  for (int axis = 1; axis < x.rank() - 1; ++axis) order.push_back(axis);
  return transpose(x, order);
}

Tensor max_pooled(const char* what, const Tensor& given, const Windows& w) {
  return with_batch(given, w.size.size(), [&](const Tensor& x) {
    check(what, x, w);
    const Tensor last = channels_last(x);
    const bool dilated = std::ranges::any_of(w.dilation, [](std::int64_t d) { return d > 1; });
    return channels_first(dilated ? dilated_maxima(what, last, w)
                                  : pooled(last, w, max_pool2d, true));
  });
}

ValuesAndIndices max_pooled_with_indices(const char* what, const Tensor& given, const Windows& w) {
  const int axes = static_cast<int>(w.size.size());
  if (given.rank() == axes + 1) {
    const ValuesAndIndices y = max_pooled_with_indices(what, expand_dims(given, 0), w);
    return {squeeze(y.values, {0}), squeeze(y.indices, {0})};
  }
  if (!is_floating(given.dtype()))
    fail<DTypeError>("[{}] expected a floating dtype, got {}", what, name_of(given.dtype()));
  check(what, given, w);
  const Tensor x = with_room(what, given, w, 2);
  const WindowElements windows(x, w);
  const Dim batch = x.dim(0), channels = x.dim(1);
  const Tensor flat = reshape(x, {batch, channels, -1});
  const Tensor elements =
      reshape(gather(flat.detach(), reshape(windows.positions, {-1}), 2),
              {batch, channels, windows.positions.dim(0), windows.positions.dim(1)});
  // The first of equal elements. If all are minus infinity, the first that is not padding.
  const Tensor chosen =
      argmax(where(windows.inside, elements, -std::numeric_limits<double>::infinity()), 3);
  const Tensor first = argmax(cast(windows.inside, int32), 1);
  const Tensor indices =
      where(windows.at(windows.inside, chosen), windows.at(windows.positions, chosen),
            windows.at(windows.positions, first));
  std::vector<Dim> sizes = {batch, channels};
  sizes.insert(sizes.end(), windows.counts.begin(), windows.counts.end());
  const Shape shape{std::span<const Dim>(sizes)};
  return {reshape(take_along_axis(flat, indices, 2), shape), reshape(indices, shape)};
}

Tensor max_unpooled(const char* what, const Tensor& x, const Tensor& indices, const Windows& w,
                    const std::vector<std::int64_t>& output_size) {
  const int axes = static_cast<int>(w.size.size());
  if (x.rank() == axes + 1)
    return squeeze(max_unpooled(what, expand_dims(x, 0), expand_dims(indices, 0), w, output_size),
                   {0});
  check(what, x, w);
  if (indices.rank() != x.rank() || !may_agree(indices.shape(), x.shape()))
    fail<ShapeError>("[{}] expected an index for each element of shape {}, got shape {}", what,
                     x.shape().to_string(), indices.shape().to_string());
  const auto given = static_cast<int>(output_size.size());
  if (given != 0 && given != axes && given != axes + 2)
    fail<InvalidArgumentError>("[{}] expected an output_size of {} or {} numbers, got {}", what,
                               axes, axes + 2, given);
  std::vector<Dim> sizes = {x.dim(0), x.dim(1)};
  Dim elements = 1;
  Tensor y = x;
  for (int i = 0; i < axes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t stride = w.stride[at], shrinks = 2 * w.padding[at] - w.size[at];
    const Dim in = x.dim(i + 2), smallest = (in - 1) * stride - shrinks;
    Dim size = smallest;
    if (given != 0) {
      size = output_size[static_cast<std::size_t>(given - axes + i)];
      // The sizes of x from which this one is less than a stride away.
      const std::int64_t reached = size.word() + shrinks,
                         least = dim::floor_quotient(reached, stride) + 1,
                         most = dim::ceil_quotient(reached, stride) + 1;
      if (!dim::may_be_at_most(least, in) || !dim::may_be_at_most(in, most))
        fail<InvalidArgumentError>(
            "[{}] expected an output_size between {} and {} (exclusive) for axis {}, got {}", what,
            dim::text(smallest - stride), dim::text(smallest + stride), i + 2, size.word());
      y = of_size(what, "an input whose result may have the output_size, a shape such as", y, i + 2,
                  dim::min(dim::max(in, least), most));
    }
    if (!dim::may_be_at_most(1, size))
      fail<ShapeError>("[{}] expected a result with elements, got size {} of axis {}", what,
                       dim::text(size), i + 2);
    sizes.push_back(size);
    elements *= size;
  }
  const Tensor flat =
      scatter(zeros({x.dim(0), x.dim(1), elements}, x.dtype()), 2,
              reshape(indices, {x.dim(0), x.dim(1), -1}), reshape(y, {x.dim(0), x.dim(1), -1}));
  return reshape(flat, Shape(std::span<const Dim>(sizes)));
}

Tensor mean_pooled(const char* what, const Tensor& given, const Windows& w) {
  return with_batch(given, w.size.size(), [&](const Tensor& x) {
    check(what, x, w);
    const Tensor last = channels_last(x);
    Windows plain = w;
    if (w.divisor) {
      double elements = 1.0;
      for (const std::int64_t size : w.size) elements *= static_cast<double>(size);
      plain.ceil = false;
      return channels_first(pooled(surrounded(last, w, 0.0, true), plain, avg_pool2d, false)) *
             (elements / static_cast<double>(*w.divisor));
    }
    if (!w.count_padding) return channels_first(pooled(last, w, avg_pool2d, true));
    Tensor y = pooled(surrounded(last, w, 0.0, false), plain, avg_pool2d, false);
    // A window that begins in the padding after the elements does not count.
    for (std::size_t i = 0; w.ceil && i < w.size.size(); ++i)
      if (w.padding[i] > 0) {
        const int axis = static_cast<int>(i) + 1;
        const std::int64_t count = count_of(w, i, last.shape().word(axis));
        y = y.slice(axis, 0, Dim(count));
      }
    return channels_first(y);
  });
}

Tensor adaptively_pooled(const char* what, const Tensor& given,
                         const std::vector<std::optional<Dim>>& sizes, bool maximum) {
  return with_batch(given, sizes.size(), [&](const Tensor& batched) {
    Tensor x = batched;
    Windows even;
    bool divides = true;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t count = sizes[i].value_or(1).word();
      if (!dim::may_be_at_most(1, count))
        fail<InvalidArgumentError>("[{}] expected an output_size of 1 or more, got {}", what,
                                   count);
      const Dim size = static_cast<int>(i) + 2 < x.rank() ? x.dim(static_cast<int>(i) + 2) : Dim(1);
      const bool known = dim::both_known(size, count);
      divides = divides && (!sizes[i] || (known && size.word() % count == 0));
      even.size.push_back(!sizes[i] || !known ? 1 : std::max<std::int64_t>(1, size.word() / count));
      even.padding.push_back(0);
      even.dilation.push_back(1);
    }
    even.stride = even.size;
    check(what, x, even);
    for (int axis = 2; axis < x.rank(); ++axis) {
      if (x.shape().word(axis) == 0)
        fail<ShapeError>("[{}] expected axes that are not empty, got shape {}", what,
                         x.shape().to_string());
      x = of_least_size(what, "axes that are not empty, a shape such as", x, axis, 1);
    }
    if (!maximum &&
        std::ranges::all_of(sizes, [](const auto& size) { return size && size->word() == 1; })) {
      Dims axes;
      for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
      return reduce_mean(x, {.axis = axes, .keepdims = true});
    }
    Tensor y = channels_last(x);
    if (divides) return channels_first(pooled(y, even, maximum ? max_pool2d : avg_pool2d, false));
    // The last axis first, so that the first of equal maxima in row-major order gets the gradient.
    for (std::size_t i = sizes.size(); i-- > 0;) {
      if (!sizes[i]) continue;
      y = along_axis(y, static_cast<int>(i) + 1, *sizes[i], [&](const Tensor& lines) {
        return maximum ? maxima(lines, *sizes[i]) : means(lines, *sizes[i]);
      });
    }
    return channels_first(y);
  });
}

}  // namespace tandem::nn
