// Scans along an axis, products and searches that are made of other operations.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/scatter.h"

namespace tandem {
namespace {

int known_axis(const Tensor& x, std::int64_t axis) {
  static_cast<void>(x.dim(axis));  // refuses others
  return static_cast<int>(axis < 0 ? axis + x.rank() : axis);
}

// An axis of unknown size takes the steps of the longest one: those beyond it change nothing.
constexpr std::int64_t kLongestAxis = std::int64_t{1} << 40;  // more than fits into any memory
std::int64_t longest(std::int64_t size) { return dim::is_unknown(size) ? kLongestAxis : size; }

// `x` moved by `by` positions toward the end of `axis`, without the first `by` ones.
Tensor before(const Tensor& x, int axis, Dim by, Dim size) { return x.slice(axis, 0, size - by); }

// combine(y, earlier) for distances of 1, 2, 4...: y has the combination of twice as many elements
// after each step.
template <class Combine>
Tensor scanned(const Tensor& x, std::int64_t axis, const Combine& combine) {
  const int along = known_axis(x, axis);
  const std::int64_t size = x.size_word(along), most = longest(size);
  Tensor y = x;
  for (std::int64_t distance = 1; distance < most; distance *= 2) {
    const Dim by = dim::min(distance, size);
    const Tensor later = y.slice(along, by, size);
    y = concat({y.slice(along, 0, by), combine(later, before(y, along, by, size))}, along);
  }
  return y;
}

// The position of the most extreme element so far. `beats(later, earlier)`.
template <class Beats>
ValuesAndIndices extremes_so_far(const Tensor& x, std::int64_t axis, const Beats& beats) {
  const int along = known_axis(x, axis);
  const std::int64_t size = x.size_word(along), most = longest(size);
  Dims sizes;
  for (int i = 0; i < x.rank(); ++i) sizes.push_back(i == along ? size : 1);
  Tensor best = stop_gradient(x);
  Tensor at = broadcast_to(reshape(range(Dim(size), {.dtype = int64}), Shape(sizes)), x.shape());
  for (std::int64_t distance = 1; distance < most; distance *= 2) {
    const Dim by = dim::min(distance, size);
    const Tensor later = best.slice(along, by, size), earlier = before(best, along, by, size);
    const Tensor wins =
        logical_or(beats(later, earlier), logical_and(is_nan(later), logical_not(is_nan(earlier))));
    at = concat({at.slice(along, 0, by),
                 where(wins, at.slice(along, by, size), before(at, along, by, size))},
                along);
    best = concat({best.slice(along, 0, by), where(wins, later, earlier)}, along);
  }
  return {take_along_axis(x, at, along), at};
}

}  // namespace

Tensor cumprod(const Tensor& x, std::int64_t axis) {
  return scanned(x, axis, [](const Tensor& a, const Tensor& b) { return a * b; });
}
Tensor logcumsumexp(const Tensor& x, std::int64_t axis) {
  return scanned(x, axis, [](const Tensor& a, const Tensor& b) { return logaddexp(a, b); });
}
ValuesAndIndices cummax(const Tensor& x, std::int64_t axis) {
  return extremes_so_far(x, axis,
                         [](const Tensor& a, const Tensor& b) { return greater_equal(a, b); });
}
ValuesAndIndices cummin(const Tensor& x, std::int64_t axis) {
  return extremes_so_far(x, axis,
                         [](const Tensor& a, const Tensor& b) { return less_equal(a, b); });
}

Tensor diff(const Tensor& x, std::int64_t n, std::int64_t axis) {
  if (n < 0) fail<InvalidArgumentError>("[diff] expected a number of 0 or more, got {}", n);
  const int along = known_axis(x, axis);
  Tensor y = x;
  for (; n > 0; --n) {
    const Dim size = y.dim(along);
    if (size.known() && size.value() == 0) return y;
    y = y.slice(along, 1, size) - y.slice(along, 0, size - 1);
  }
  return y;
}

Tensor tensordot(const Tensor& a, const Tensor& other, const std::vector<std::int64_t>& axes_a,
                 const std::vector<std::int64_t>& axes_b) {
  if (axes_a.size() != axes_b.size())
    fail<InvalidArgumentError>("[tensordot] expected as many axes of a as of b, got {} and {}",
                               axes_a.size(), axes_b.size());
  // The axes that stay, and those that are summed over, in the order of the lists.
  const auto parts = [](const Tensor& x, const std::vector<std::int64_t>& axes) {
    std::pair<Dims, Dims> result;
    for (const std::int64_t axis : axes) {
      const std::int64_t at = known_axis(x, axis);
      for (const std::int64_t other : result.second)
        if (other == at)
          fail<InvalidArgumentError>("[tensordot] expected each axis once, got {} twice", at);
      result.second.push_back(at);
    }
    for (int i = 0; i < x.rank(); ++i)
      if (std::ranges::find(result.second, std::int64_t{i}) == result.second.end())
        result.first.push_back(i);
    return result;
  };
  const auto [kept_a, summed_a] = parts(a, axes_a);
  const auto [kept_b, summed_b] = parts(other, axes_b);
  Tensor b = other;
  Dim rows = 1, inner = 1, columns = 1;
  Dims result, order_a = kept_a, order_b = summed_b;
  for (const std::int64_t axis : kept_a) {
    rows *= a.dim(axis);
    result.push_back(a.dim(axis).word());
  }
  for (int i = 0; i < summed_a.size(); ++i) {
    if (!dim::may_equal(a.dim(summed_a[i]), b.dim(summed_b[i])))
      fail<ShapeError>("[tensordot] expected equal sizes of axes {} and {}, got shapes {} and {}",
                       summed_a[i], summed_b[i], a.shape().to_string(), b.shape().to_string());
    b = of_size("tensordot", "an operand of shape", b, summed_b[i], a.dim(summed_a[i]));
    inner *= a.dim(summed_a[i]);
    order_a.push_back(summed_a[i]);
  }
  for (const std::int64_t axis : kept_b) {
    columns *= b.dim(axis);
    result.push_back(b.dim(axis).word());
    order_b.push_back(axis);
  }
  return reshape(matmul(reshape(transpose(a, order_a), {rows, inner}),
                        reshape(transpose(b, order_b), {inner, columns})),
                 Shape(result));
}

Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t axes) {
  if (axes < 0 || axes > a.rank() || axes > b.rank())
    fail<InvalidArgumentError>(
        "[tensordot] expected at most as many axes as both tensors have, got {} for shapes {} and "
        "{}",
        axes, a.shape().to_string(), b.shape().to_string());
  std::vector<std::int64_t> last, first;
  for (std::int64_t i = 0; i < axes; ++i) {
    last.push_back(a.rank() - axes + i);
    first.push_back(i);
  }
  return tensordot(a, b, last, first);
}

namespace {

// beta * x + alpha * product.
Tensor added(const char* function, const Tensor& x, const Tensor& product, double beta,
             double alpha) {
  const Tensor scaled = alpha == 1.0 ? product : product * alpha;
  if (beta == 0.0) return scaled;
  const Tensor sum = (beta == 1.0 ? x : x * beta) + scaled;
  if (!dim::may_equal(sum.shape(), product.shape()))
    fail<ShapeError>("[{}] expected a tensor that broadcasts to shape {}, got shape {}", function,
                     product.shape().to_string(), x.shape().to_string());
  return of_shape(function, "a sum of the product's shape", sum, product.shape());
}

void expect_ranks(const char* function, const Tensor& a, int rank_a, const Tensor& b, int rank_b) {
  if (a.rank() != rank_a || b.rank() != rank_b)
    fail<ShapeError>("[{}] expected tensors of {} and {} axes, got shapes {} and {}", function,
                     rank_a, rank_b, a.shape().to_string(), b.shape().to_string());
}

}  // namespace

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  expect_ranks("addmm", a, 2, b, 2);
  return added("addmm", x, matmul(a, b), beta, alpha);
}
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  expect_ranks("addmv", a, 2, b, 1);
  return added("addmv", x, matmul(a, b), beta, alpha);
}
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  expect_ranks("addr", a, 1, b, 1);
  return added("addr", x, expand_dims(a, 1) * expand_dims(b, 0), beta, alpha);
}
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  expect_ranks("baddbmm", a, 3, b, 3);
  return added("baddbmm", x, matmul(a, b), beta, alpha);
}
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  expect_ranks("addbmm", a, 3, b, 3);
  return added("addbmm", x, reduce_sum(matmul(a, b), 0), beta, alpha);
}

Tensor inner(const Tensor& a, const Tensor& b) {
  if (a.rank() == 0 || b.rank() == 0) return a * b;
  return tensordot(a, b, {-1}, {-1});
}

Tensor kron(const Tensor& a, const Tensor& b) {
  const int rank = std::max(a.rank(), b.rank());
  const auto size = [rank](const Tensor& x, int axis) {
    const int at = axis - (rank - x.rank());
    return at < 0 ? Dim(1) : x.dim(at);
  };
  Dims left, right, result;
  for (int axis = 0; axis < rank; ++axis) {
    const Dim outer = size(a, axis), inner = size(b, axis);
    left.push_back(outer.word());
    left.push_back(1);
    right.push_back(1);
    right.push_back(inner.word());
    result.push_back((outer * inner).word());
  }
  return reshape(reshape(a, Shape(left)) * reshape(b, Shape(right)), Shape(result));
}

Tensor cross(const Tensor& a, const Tensor& b, std::int64_t axis) {
  if (!dim::may_equal(a.dim(axis), 3) || !dim::may_equal(b.dim(axis), 3))
    fail<ShapeError>("[cross] expected a size of 3 along axis {}, got shapes {} and {}", axis,
                     a.shape().to_string(), b.shape().to_string());
  constexpr const char* kVectors = "vectors of 3 elements, in shape";
  const Tensor left = of_size("cross", kVectors, a, axis, 3),
               right = of_size("cross", kVectors, b, axis, 3);
  const auto part = [axis](const Tensor& x, std::int64_t at) { return x.slice(axis, at, at + 1); };
  const auto element = [&](std::int64_t i, std::int64_t j) {
    return part(left, i) * part(right, j) - part(left, j) * part(right, i);
  };
  return concat({element(1, 2), element(2, 0), element(0, 1)}, axis);
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  if (a.rank() < 2 || b.rank() < 2 || !dim::may_equal(a.dim(-1), b.dim(-1)))
    fail<ShapeError>("[cdist] expected shapes (..., m, d) and (..., n, d), got {} and {}",
                     a.shape().to_string(), b.shape().to_string());
  if (!(p > 0.0)) fail<InvalidArgumentError>("[cdist] expected a positive p, got {}", p);
  const Tensor difference =
      expand_dims(a, -2) -
      expand_dims(of_size("cdist", "vectors of one size, in shape", b, -1, a.dim(-1)), -3);
  const ReduceOptions last{.axis = Dims{-1}};
  if (p == 2.0) return norm(difference, last);
  const Tensor sizes = abs(difference);
  if (p == 1.0) return reduce_sum(sizes, last);
  if (std::isinf(p)) return reduce_max(sizes, last);
  const Tensor sum = reduce_sum(pow(sizes, p), last);
  const Tensor zero = equal(sum, 0.0);  // whose root has no slope
  return where(zero, 0.0, pow(where(zero, 1.0, sum), 1.0 / p));
}

Tensor diag_embed(const Tensor& x, std::int64_t offset) {
  if (x.rank() < 1) fail<ShapeError>("[diag_embed] expected a vector or more, got a scalar");
  const Dim size = x.dim(-1);
  const Tensor on_diagonal = equal(eye(size), 1.0);
  const Tensor square_of = where(on_diagonal, expand_dims(x, -1), 0.0);
  if (offset == 0) return square_of;
  std::vector<std::pair<Dim, Dim>> paddings(static_cast<std::size_t>(x.rank()) + 1, {0, 0});
  const std::size_t rows = paddings.size() - 2, columns = paddings.size() - 1;
  if (offset > 0) {
    paddings[rows] = {0, offset};
    paddings[columns] = {offset, 0};
  } else {
    paddings[rows] = {-offset, 0};
    paddings[columns] = {0, -offset};
  }
  return pad(square_of, paddings);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::int64_t axis) {
  if (repeats < 0)
    fail<InvalidArgumentError>("[repeat_interleave] expected 0 repeats or more, got {}", repeats);
  const int along = known_axis(x, axis);
  Dims repeated, result;
  for (int i = 0; i < x.rank(); ++i) {
    repeated.push_back(x.shape().word(i));
    if (i == along) repeated.push_back(repeats);
    result.push_back(i == along ? dim::product(x.shape().word(i), repeats) : x.shape().word(i));
  }
  return reshape(broadcast_to(expand_dims(x, along + 1), Shape(repeated)), Shape(result));
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  if (sorted.rank() != 1)
    fail<ShapeError>("[searchsorted] expected a sorted vector, got shape {}",
                     sorted.shape().to_string());
  const Dim size = sorted.dim(0);
  Tensor position = zeros(values.shape(), int64);
  if (size.word() == 0) return position;
  // If the size is unknown, it may be 0: one more element, which never stays before.
  const Tensor elements = size.known() ? sorted : pad(sorted, {{0, 1}});
  const auto most = static_cast<std::uint64_t>(longest(size.word()));
  // The number of elements that stay before: bit by bit.
  for (std::uint64_t step = std::bit_floor(most); step > 0; step /= 2) {
    const Tensor next = position + static_cast<double>(step), last = minimum(next, size) - 1.0;
    const Tensor element = gather(elements, size.known() ? last : maximum(last, 0.0));
    Tensor before = right ? less_equal(element, values) : less(element, values);
    // All elements stay before NaN, and NaN among them before nothing else.
    if (is_floating(values.dtype())) before = logical_or(before, is_nan(values));
    position = where(logical_and(before, less_equal(next, size)), next, position);
  }
  return position;
}

Tensor index_add(const Tensor& x, std::int64_t axis, const Tensor& indices, const Tensor& source) {
  const int along = known_axis(x, axis);
  if (indices.rank() != 1 || source.rank() != x.rank() ||
      !dim::may_equal(indices.dim(0), source.dim(along)))
    fail<ShapeError>(
        "[index_add] expected a vector of positions and slices of the rank of shape {}, as many "
        "along axis {}, got shapes {} and {}",
        x.shape().to_string(), along, indices.shape().to_string(), source.shape().to_string());
  // That axis first.
  Dims order{along}, back;
  for (int i = 0; i < x.rank(); ++i)
    if (i != along) order.push_back(i);
  for (int i = 0; i < x.rank(); ++i) back.push_back(i < along ? i + 1 : i == along ? 0 : i);
  const Tensor sum =
      tensor_scatter_nd_add(transpose(x, order), expand_dims(indices, 1), transpose(source, order));
  return transpose(sum, back);
}

}  // namespace tandem
