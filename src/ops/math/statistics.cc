// Order statistics, reductions and descriptions of data that are made of other operations.
#include "tandem/statistics.h"

#include <cmath>
#include <limits>

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/rearrange.h"

namespace tandem {
namespace {

// x, which has elements along `axis`.
Tensor with_elements(const char* function, const Tensor& x, std::int64_t axis) {
  if (!dim::may_be_at_most(1, x.size_word(axis)))
    fail<InvalidArgumentError>("[{}] expected at least one element along axis {}, got shape {}",
                               function, axis, x.shape().to_string());
  return of_least_size(function, "at least one element along an axis, a shape such as", x, axis, 1);
}

// The elements of x at `positions`, of size 1 along `axis`.
ValuesAndIndices chosen_along(const Tensor& x, const Tensor& positions, std::int64_t axis,
                              bool keepdims) {
  const Tensor values = take_along_axis(x, positions, axis);
  const std::int64_t at = axis < 0 ? axis + x.rank() : axis;
  if (keepdims) return {values, positions};
  return {squeeze(values, {at}), squeeze(positions, {at})};
}

// Scalars have one element along the axis 0.
template <class F>
ValuesAndIndices of_scalar(const Tensor& x, const F& f) {
  const ValuesAndIndices found = f(reshape(x, {1}));
  return {reshape(found.values, Shape::scalar()), reshape(found.indices, Shape::scalar())};
}

Tensor nans_of(const Tensor& x) {
  return is_floating(x.dtype()) ? is_nan(x) : zeros_like(equal(x, 0.0));
}

// The number of elements along `axis` that are no NaN, int64, of size 1 along it.
Tensor numbers_along(const Tensor& x, std::int64_t axis) {
  return reduce_sum(cast(logical_not(nans_of(x)), int64), axis, true);
}

ValuesAndIndices median_along(const char* function, const Tensor& x, std::int64_t axis,
                              bool keepdims, bool skips_nan) {
  if (x.rank() == 0)
    return of_scalar(
        x, [&](const Tensor& y) { return median_along(function, y, 0, false, skips_nan); });
  const Tensor data = with_elements(function, x, axis);
  const Dim size = data.dim(axis);
  const Tensor order = argsort(data, axis);
  const Tensor numbers = numbers_along(data, axis);
  const Tensor middle = floor_divide(maximum(numbers, 1.0) - 1.0, 2.0);
  // NaN are last, in their order.
  const Tensor place =
      skips_nan ? middle : where(less(numbers, size), minimum(numbers, size - 1), middle);
  return chosen_along(data, take_along_axis(order, place, axis), axis, keepdims);
}

// Rows of x along its last axis, one for each of the fractions `q`.
Tensor quantiles_of_last(const Tensor& x, const Tensor& q, std::string_view how, bool skips_nan) {
  const Tensor sorted = sort(x, -1).values;
  const Tensor numbers = numbers_along(x, -1);
  const Dim size = x.dim(-1);
  const Tensor last =
      skips_nan ? maximum(numbers, 1.0) - 1.0 : full(numbers.shape(), size - 1, {.dtype = int64});
  Tensor position = cast(last, x.dtype()) * q;  // [..., quantiles]
  if (how == "lower") position = floor(position);
  if (how == "higher") position = ceil(position);
  if (how == "nearest") position = round(position);
  const Tensor below = floor(position);
  const auto at = [&](const Tensor& place) {
    return take_along_axis(sorted, cast(place, int64), -1);
  };
  const Tensor low = at(below);
  Tensor result = low;
  if (how == "linear" || how == "midpoint") {
    const Tensor high = at(ceil(position));
    const Tensor weight =
        how == "linear" ? position - below : full(Shape::scalar(), 0.5, x.dtype());
    result = where(equal(low, high), low, lerp(low, high, weight));
  }
  if (skips_nan) return result;
  return where(less(numbers, size), std::numeric_limits<double>::quiet_NaN(), result);
}

void expect_fractions(const char* function, const Tensor& x, DType q) {
  if (!is_floating(x.dtype()) || q != x.dtype())
    fail<DTypeError>("[{}] expected fractions of the floating dtype of the data, got {} and {}",
                     function, name_of(x.dtype()), name_of(q));
}

Tensor quantile_of(const char* function, const Tensor& x, const Tensor& q,
                   const QuantileOptions& options, bool skips_nan) {
  expect_fractions(function, x, q.dtype());
  if (q.rank() > 1)
    fail<ShapeError>("[{}] expected a fraction or a vector of them, got shape {}", function,
                     q.shape().to_string());
  const std::string_view how = options.interpolation;
  if (how != "linear" && how != "lower" && how != "higher" && how != "nearest" && how != "midpoint")
    fail<InvalidArgumentError>(
        "[{}] expected \"linear\", \"lower\", \"higher\", \"nearest\" or \"midpoint\", got \"{}\"",
        function, how);
  const bool all = !options.axis || x.rank() == 0;
  const Tensor data =
      with_elements(function, all ? reshape(x, {-1}) : movedim(x, *options.axis, -1), -1);
  Tensor result = movedim(quantiles_of_last(data, reshape(q, {-1}), how, skips_nan), -1, 0);
  if (options.keepdims) {
    Dims sizes = {result.shape().word(0)};
    const std::int64_t axis = all                 ? -1
                              : *options.axis < 0 ? *options.axis + x.rank()
                                                  : *options.axis;
    for (int i = 0; i < x.rank(); ++i) sizes.push_back(all || i == axis ? 1 : x.shape().word(i));
    result = reshape(result, Shape(sizes));
  }
  return q.rank() == 0 ? squeeze(result, {0}) : result;
}

Tensor fraction(const char* function, const Tensor& x, double q) {
  expect_fractions(function, x, x.dtype());
  if (!(q >= 0.0 && q <= 1.0))
    fail<InvalidArgumentError>("[{}] expected a fraction of [0, 1], got {}", function, q);
  return full(Shape::scalar(), q, x.dtype());
}

// The areas between neighbours of y along `axis`.
Tensor areas(const Tensor& y, std::int64_t axis) {
  const Dim size = y.dim(axis);
  if (size.known() && size.value() == 0) return y;
  return (y.slice(axis, 1, size) + y.slice(axis, 0, size - 1)) * 0.5;
}

// The distances of neighbours in x, along `axis` of y.
Tensor steps(const Tensor& y, const Tensor& x, std::int64_t axis) {
  if (x.rank() != 1) return diff(x, 1, axis - (axis < 0 ? 0 : y.rank() - x.rank()));
  const std::int64_t at = axis < 0 ? axis + y.rank() : axis;
  Dims sizes;
  for (int i = 0; i < y.rank(); ++i) sizes.push_back(i == at ? -1 : 1);
  return reshape(diff(x), Shape(sizes));
}

}  // namespace

ValuesAndIndices median(const Tensor& x, std::int64_t axis, bool keepdims) {
  return median_along("median", x, axis, keepdims, false);
}
Tensor median(const Tensor& x) { return median(reshape(x, {-1}), 0).values; }
ValuesAndIndices nanmedian(const Tensor& x, std::int64_t axis, bool keepdims) {
  return median_along("nanmedian", x, axis, keepdims, true);
}
Tensor nanmedian(const Tensor& x) { return nanmedian(reshape(x, {-1}), 0).values; }

ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis, bool keepdims) {
  if (x.rank() == 0) return of_scalar(x, [&](const Tensor& y) { return kthvalue(y, k, 0); });
  if (k < 1 || !dim::may_be_at_most(k, x.size_word(axis)))
    fail<InvalidArgumentError>(
        "[kthvalue] expected k of 1 to the size of axis {}, got {} for shape {}", axis, k,
        x.shape().to_string());
  return chosen_along(x, argsort(x, axis).slice(axis, k - 1, k), axis, keepdims);
}

ValuesAndIndices mode(const Tensor& x, std::int64_t axis, bool keepdims) {
  if (x.rank() == 0) return of_scalar(x, [](const Tensor& y) { return mode(y, 0); });
  const Tensor last = movedim(with_elements("mode", x, axis), axis, -1);
  const Dim size = last.dim(-1);
  const Tensor order = argsort(last, -1), sorted = take_along_axis(last, order, -1);
  // Where each run of equal elements begins, and so how many precede an element in it.
  const Tensor place = range(size, {.dtype = int64});
  const Tensor differs = not_equal(sorted.slice(-1, 1, size), sorted.slice(-1, 0, size - 1));
  Shape one = last.shape();
  one.set(last.rank() - 1, 1);
  const Tensor starts = concat({full(one, 1.0, bool_), differs}, -1);
  const Tensor begin = cummax(cast(where(starts, place, 0.0), float64), -1).values;
  const Tensor most = argmax(cast(place, float64) - begin, -1);  // the end of the first longest run
  const Tensor at = take_along_axis(order, expand_dims(most, -1), -1);
  return chosen_along(x, movedim(at, -1, axis), axis, keepdims);
}

Tensor quantile(const Tensor& x, const Tensor& q, const QuantileOptions& options) {
  return quantile_of("quantile", x, q, options, false);
}
Tensor quantile(const Tensor& x, double q, const QuantileOptions& options) {
  return quantile(x, fraction("quantile", x, q), options);
}
Tensor nanquantile(const Tensor& x, const Tensor& q, const QuantileOptions& options) {
  return quantile_of("nanquantile", x, q, options, true);
}
Tensor nanquantile(const Tensor& x, double q, const QuantileOptions& options) {
  return nanquantile(x, fraction("nanquantile", x, q), options);
}

Tensor nansum(const Tensor& x, const ReduceOptions& options) {
  return reduce_sum(where(nans_of(x), zeros_like(x), x), options);
}
Tensor nanmean(const Tensor& x, const ReduceOptions& options) {
  return nansum(x, options) / reduce_sum(cast(logical_not(nans_of(x)), x.dtype()), options);
}
Tensor count_nonzero(const Tensor& x, const ReduceOptions& options) {
  return reduce_sum(x.dtype() == bool_ ? x : not_equal(x, 0.0), options);
}

Tensor dist(const Tensor& a, const Tensor& b, double p) {
  const Tensor difference = a - b;
  const bool narrow = size_of(a.dtype()) == 2;  // whose powers overflow
  return narrow ? cast(cast(difference, float32).norm(p), a.dtype()) : difference.norm(p);
}

Tensor renorm(const Tensor& x, double p, std::int64_t axis, double max_norm) {
  if (x.rank() < 2 || !(p > 0.0) || !(max_norm >= 0.0))
    fail<InvalidArgumentError>(
        "[renorm] expected a matrix or more, a positive p and a limit of 0 or more, got shape {}, "
        "{} "
        "and {}",
        x.shape().to_string(), p, max_norm);
  static_cast<void>(x.dim(axis));
  const std::int64_t at = axis < 0 ? axis + x.rank() : axis;
  Dims others;
  for (int i = 0; i < x.rank(); ++i)
    if (i != at) others.push_back(i);
  const ReduceOptions over{.axis = others, .keepdims = true};
  const Tensor size = p == 2.0        ? norm(x, over)
                      : std::isinf(p) ? reduce_max(abs(x), over)
                                      : pow(reduce_sum(pow(abs(x), p), over), 1.0 / p);
  return x * where(greater(size, max_norm), max_norm / (size + 1e-7), ones_like(size));
}

Tensor cov(const Tensor& x, std::int64_t correction) {
  if (x.rank() > 2)
    fail<ShapeError>("[cov] expected a matrix with a row per variable, or a vector, got shape {}",
                     x.shape().to_string());
  Tensor rows = atleast_2d(x);
  // One variable has a scalar as its result.
  if (!rows.dim(0).known())
    rows = of_least_size(
        "cov", "more than one variable if their number is unknown, a shape such as", rows, 0, 2);
  const Tensor centered = rows - reduce_mean(rows, 1, true);
  const Tensor products = matmul(centered, centered, {.transpose_b = true});
  const Tensor count = detail::scalar_of(rows.dim(1), float64) - static_cast<double>(correction);
  const Tensor result = products / cast(maximum(count, 0.0), x.dtype());
  const bool one = rows.dim(0).known() && rows.dim(0).value() == 1;
  return one ? reshape(result, Shape::scalar()) : result;
}

Tensor corrcoef(const Tensor& x) {
  const Tensor covariance = cov(x);
  if (covariance.rank() == 0) return covariance / covariance;
  const Tensor deviation = sqrt(covariance.diagonal());
  return clip_by_value(covariance / expand_dims(deviation, 1) / expand_dims(deviation, 0), -1.0,
                       1.0);
}

Tensor trapezoid(const Tensor& y, double dx, std::int64_t axis) {
  return reduce_sum(areas(y, axis), axis) * dx;
}
Tensor trapezoid(const Tensor& y, const Tensor& x, std::int64_t axis) {
  return reduce_sum(areas(y, axis) * steps(y, x, axis), axis);
}
Tensor cumulative_trapezoid(const Tensor& y, double dx, std::int64_t axis) {
  return cumsum(areas(y, axis), axis) * dx;
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, std::int64_t axis) {
  return cumsum(areas(y, axis) * steps(y, x, axis), axis);
}

Tensor isin(const Tensor& elements, const Tensor& among) {
  const Tensor sorted = sort(reshape(among, {-1})).values;
  const Tensor equals = searchsorted(sorted, elements, true) - searchsorted(sorted, elements);
  return logical_and(greater(equals, 0.0), logical_not(nans_of(elements)));
}

Tensor histc(const Tensor& x, std::int64_t bins, double low, double high) {
  if (bins < 1 || !(low <= high) || std::isinf(low) || std::isinf(high))
    fail<InvalidArgumentError>(
        "[histc] expected at least 1 part of a finite range, got {} of [{}, {}]", bins, low, high);
  const Tensor data = stop_gradient(reshape(x, {-1}));
  Tensor begin = full(Shape::scalar(), low, x.dtype()),
         end = full(Shape::scalar(), high, x.dtype());
  if (low == high) {
    begin = reduce_min(data);
    end = reduce_max(data);
    const Tensor point = equal(begin, end);
    begin = begin - cast(point, x.dtype());
    end = end + cast(point, x.dtype());
  }
  const auto count = static_cast<double>(bins);
  const Tensor part = minimum(floor((data - begin) * count / (end - begin)), count - 1.0);
  const Tensor inside = logical_and(greater_equal(data, begin), less_equal(data, end));
  const Tensor of_part =
      one_hot(cast(where(inside, part, -1.0), int64), bins, {.dtype = x.dtype()});
  return reduce_sum(of_part, 0);
}

Tensor vander(const Tensor& x, std::optional<std::int64_t> columns, bool increasing) {
  if (x.rank() < 1) fail<ShapeError>("[vander] expected a vector, got a scalar");
  const Dim count = columns ? Dim(*columns) : x.dim(-1);
  if (!dim::may_be_at_most(0, count))
    fail<InvalidArgumentError>("[vander] expected 0 columns or more, got {}", count.to_string());
  const Tensor exponents = range(count, {.dtype = x.dtype()});
  return pow(expand_dims(x, -1), increasing ? exponents : reverse(exponents, {0}));
}

}  // namespace tandem
