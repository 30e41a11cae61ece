// The methods of Tensor that call free functions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/dim.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/element_count.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tensor/element_types.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

ReduceOptions over(const Dims& axes, bool keepdims) {
  ReduceOptions options;
  options.keepdims = keepdims;
  if (!axes.empty()) options.axis = axes;
  return options;
}

// `axis` counted from the start. Throws ShapeError for an axis that does not exist.
std::size_t axis_of(const Tensor& x, std::int64_t axis) {
  static_cast<void>(x.size_word(axis));
  return static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis);
}

// `reduced`, the result of a reduction of `axis` of x, with this axis of size 1 if it is kept.
Tensor with_axis(const Tensor& reduced, const Tensor& x, std::int64_t axis, bool keepdims) {
  return keepdims ? expand_dims(reduced, static_cast<std::int64_t>(axis_of(x, axis))) : reduced;
}

// y times n / (n - 1), or times the root of that.
Tensor corrected(const Tensor& y, std::int64_t n, bool root) {
  if (!dim::is_unknown(n)) {
    const double count = static_cast<double>(n), factor = count / (count - 1.0);
    return multiply(y, root ? std::sqrt(factor) : factor);
  }
  const Tensor count = element_count({n}, float64), factor = count / (count - 1.0);
  const DType wide = y.dtype() == float64 ? float64 : float32;
  const Tensor used = cast(root ? sqrt(factor) : factor, wide);
  return cast(cast(y, wide) * used, y.dtype());
}

// The norm of order p. Those of order 2 and infinity have no elements beyond the largest float.
Tensor norm_of(const Tensor& x, double p, const ReduceOptions& options) {
  if (std::isinf(p)) return p > 0 ? reduce_max(abs(x), options) : reduce_min(abs(x), options);
  if (p == 2.0) return norm(x, options);
  if (p == 1.0) return reduce_sum(abs(x), options);
  if (p == 0.0) return reduce_sum(cast(not_equal(x, 0.0), x.dtype()), options);
  return pow(reduce_sum(pow(abs(x), p), options), 1.0 / p);
}

// A number of any dtype, without a loss.
using WideNumber = std::variant<double, std::int64_t, std::uint64_t>;

WideNumber number_in(const Tensor& tensor) {
  if (tensor.shape().num_elements() != 1)
    fail<ShapeError>("[item] expected a tensor of one element, got shape {}",
                     tensor.shape().to_string());
  return switch_any_dtype(tensor.dtype(), [&]<class T>(TypeTag<T>) -> WideNumber {
    T value{};
    to_host(tensor, &value);
    if constexpr (std::is_same_v<T, std::uint64_t>)
      return value;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<std::int64_t>(value);
    else
      return static_cast<double>(value);
  });
}

// Whether the number has a value in T: an integer within its range, or a number below its infinity.
template <class T, class From>
bool fits(From number) {
  if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else if constexpr (std::is_integral_v<T> && std::is_integral_v<From>) {
    return std::in_range<T>(number);
  } else if constexpr (std::is_integral_v<T>) {
    // 2 to the number of its digits is a double, the largest integer may not be.
    const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
    return number == std::trunc(number) && number < end &&
           number >= (std::is_signed_v<T> ? -end : 0.0);
  } else {
    const auto value = static_cast<double>(number);
    return std::isfinite(static_cast<double>(static_cast<T>(value))) || !std::isfinite(value);
  }
}

}  // namespace

double Tensor::item() const {
  return std::visit([](auto number) { return static_cast<double>(number); }, number_in(*this));
}

template <class T>
T Tensor::item() const {
  return std::visit(
      [&]<class From>(From number) {
        if (!fits<T>(number))
          fail<InvalidArgumentError>(
              "[item] the {} {} is no {}; read it as another type, or cast "
              "it first",
              name_of(dtype()), number, name_of(dtype_of<T>));
        if constexpr (std::is_same_v<T, bool>)
          return number != From{0};
        else if constexpr (std::is_integral_v<T>)
          return static_cast<T>(number);
        else
          return static_cast<T>(static_cast<double>(number));
      },
      number_in(*this));
}

#define TANDEM_INSTANTIATE(T) template T Tensor::item<T>() const;
TANDEM_EACH_ELEMENT_TYPE(TANDEM_INSTANTIATE)
#undef TANDEM_INSTANTIATE

Tensor Tensor::sum(const Dims& axes, bool keepdims) const {
  return reduce_sum(*this, over(axes, keepdims));
}
Tensor Tensor::mean(const Dims& axes, bool keepdims) const {
  return reduce_mean(*this, over(axes, keepdims));
}
Tensor Tensor::max(const Dims& axes, bool keepdims) const {
  return reduce_max(*this, over(axes, keepdims));
}
Tensor Tensor::min(const Dims& axes, bool keepdims) const {
  return reduce_min(*this, over(axes, keepdims));
}
Tensor Tensor::argmax(std::int64_t axis, bool keepdims) const {
  return with_axis(tandem::argmax(*this, axis), *this, axis, keepdims);
}
Tensor Tensor::argmin(std::int64_t axis, bool keepdims) const {
  return with_axis(tandem::argmin(*this, axis), *this, axis, keepdims);
}
Tensor Tensor::reshape(const Shape& shape) const { return tandem::reshape(*this, shape); }
Tensor Tensor::transpose(const Dims& permutation) const {
  return tandem::transpose(*this, permutation);
}
Tensor Tensor::abs() const { return tandem::abs(*this); }
Tensor Tensor::sqrt() const { return tandem::sqrt(*this); }
Tensor Tensor::exp() const { return tandem::exp(*this); }
Tensor Tensor::log() const { return tandem::log(*this); }
Tensor Tensor::square() const { return tandem::square(*this); }
Tensor Tensor::rsqrt() const { return tandem::rsqrt(*this); }
Tensor Tensor::sin() const { return tandem::sin(*this); }
Tensor Tensor::cos() const { return tandem::cos(*this); }
Tensor Tensor::tanh() const { return tandem::tanh(*this); }
Tensor Tensor::sigmoid() const { return tandem::sigmoid(*this); }
Tensor Tensor::sign() const { return tandem::sign(*this); }
Tensor Tensor::floor() const { return tandem::floor(*this); }
Tensor Tensor::ceil() const { return tandem::ceil(*this); }
Tensor Tensor::round() const { return tandem::round(*this); }
Tensor Tensor::pow(double exponent) const { return tandem::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return tandem::pow(*this, exponent); }
Tensor Tensor::pow(Dim exponent) const { return tandem::pow(*this, exponent); }
Tensor Tensor::matmul(const Tensor& other) const { return tandem::matmul(*this, other); }
Tensor Tensor::cumsum(std::int64_t axis) const { return tandem::cumsum(*this, axis); }
ValuesAndIndices Tensor::sort(std::int64_t axis, bool descending) const {
  return tandem::sort(*this, axis, descending);
}
Tensor Tensor::argsort(std::int64_t axis, bool descending) const {
  return tandem::argsort(*this, axis, descending);
}
ValuesAndIndices Tensor::topk(std::int64_t k, std::int64_t axis, bool largest) const {
  return tandem::topk(*this, k, axis, largest);
}
Tensor Tensor::log1p() const { return tandem::log1p(*this); }
Tensor Tensor::expm1() const { return tandem::expm1(*this); }
Tensor Tensor::erf() const { return tandem::erf(*this); }
Tensor Tensor::reciprocal() const { return tandem::reciprocal(*this); }
Tensor Tensor::maximum(const Tensor& other) const { return tandem::maximum(*this, other); }
Tensor Tensor::minimum(const Tensor& other) const { return tandem::minimum(*this, other); }
Tensor Tensor::logical_and(const Tensor& other) const { return tandem::logical_and(*this, other); }
Tensor Tensor::logical_or(const Tensor& other) const { return tandem::logical_or(*this, other); }
Tensor Tensor::logical_not() const { return tandem::logical_not(*this); }
Tensor Tensor::tril(std::int64_t diagonal) const { return tandem::tril(*this, diagonal); }
Tensor Tensor::triu(std::int64_t diagonal) const { return tandem::triu(*this, diagonal); }
Tensor Tensor::isnan() const { return is_nan(*this); }
Tensor Tensor::isfinite() const { return is_finite(*this); }
Tensor Tensor::flip(const Dims& axes) const { return reverse(*this, axes); }
std::vector<Tensor> Tensor::unbind(std::int64_t axis) const { return unstack(*this, axis); }
Tensor Tensor::logsumexp(std::int64_t axis, bool keepdims) const {
  return reduce_logsumexp(*this, axis, keepdims);
}
Tensor Tensor::relu() const { return nn::relu(*this); }
Tensor Tensor::softmax(std::int64_t axis) const { return nn::softmax(*this, axis); }
Tensor Tensor::log_softmax(std::int64_t axis) const { return nn::log_softmax(*this, axis); }
Tensor Tensor::clamp(double low, double high) const { return clip_by_value(*this, low, high); }
Tensor Tensor::clamp(double low) const { return tandem::maximum(*this, low); }
Tensor Tensor::clamp_min(double low) const { return tandem::maximum(*this, low); }
Tensor Tensor::clamp_max(double high) const { return tandem::minimum(*this, high); }
Tensor Tensor::clamp(Dim low) const { return tandem::maximum(*this, low); }
Tensor Tensor::clamp_min(Dim low) const { return tandem::maximum(*this, low); }
Tensor Tensor::clamp_max(Dim high) const { return tandem::minimum(*this, high); }
Tensor Tensor::norm() const { return tandem::norm(*this); }
Tensor Tensor::norm(double p) const { return norm_of(*this, p, {}); }
Tensor Tensor::norm(double p, std::int64_t axis, bool keepdims) const {
  return norm_of(*this, p, {.axis = axis, .keepdims = keepdims});
}
Tensor Tensor::prod() const { return reduce_prod(*this); }
Tensor Tensor::any() const { return reduce_any(*this); }
Tensor Tensor::all() const { return reduce_all(*this); }
Tensor Tensor::any(std::int64_t axis, bool keepdims) const {
  return reduce_any(*this, axis, keepdims);
}
Tensor Tensor::all(std::int64_t axis, bool keepdims) const {
  return reduce_all(*this, axis, keepdims);
}
Tensor Tensor::prod(std::int64_t axis, bool keepdims) const {
  return reduce_prod(*this, axis, keepdims);
}
Tensor Tensor::unsqueeze(std::int64_t axis) const { return expand_dims(*this, axis); }
Tensor Tensor::squeeze(const Dims& axes) const { return tandem::squeeze(*this, axes); }
Tensor Tensor::expand(const Shape& shape) const { return broadcast_to(*this, shape); }
Tensor Tensor::repeat(const Sizes& multiples) const { return tile(*this, multiples); }
Tensor Tensor::masked_select(const Tensor& mask) const { return boolean_mask(*this, mask); }
Tensor Tensor::masked_fill(const Tensor& mask, double value) const {
  return where(mask, full(Shape::scalar(), value, {.dtype = dtype()}), *this);
}
Tensor Tensor::masked_fill(const Tensor& mask, Dim value) const {
  return where(mask, value, *this);
}
Tensor Tensor::flatten(std::int64_t start, std::int64_t end) const {
  const auto first = static_cast<int>(axis_of(*this, start)),
             last = static_cast<int>(axis_of(*this, end));
  if (first > last)
    fail<InvalidArgumentError>("[flatten] expected an end that is not before the start, got {}, {}",
                               start, end);
  Dims sizes;
  for (int axis = 0; axis < first; ++axis) sizes.push_back(shape().word(axis));
  std::int64_t together = 1;
  for (int axis = first; axis <= last; ++axis)
    together = dim::product(together, shape().word(axis));
  sizes.push_back(together);
  for (int axis = last + 1; axis < rank(); ++axis) sizes.push_back(shape().word(axis));
  return reshape(Shape(sizes));
}
ValuesAndIndices Tensor::max_along(std::int64_t axis, bool keepdims) const {
  return tandem::max(*this, axis, keepdims);
}
ValuesAndIndices Tensor::min_along(std::int64_t axis, bool keepdims) const {
  return tandem::min(*this, axis, keepdims);
}
Tensor Tensor::gather(std::int64_t axis, const Tensor& indices) const {
  return tandem::gather(*this, axis, indices);
}
Tensor Tensor::roll(std::int64_t shift, std::int64_t axis) const {
  return tandem::roll(*this, shift, axis);
}
bool Tensor::equal(const Tensor& other) const {
  return shape() == other.shape() && reduce_all(tandem::equal(*this, other)).item<bool>();
}
Tensor Tensor::operator[](const Tensor& index) const {
  return index.dtype() == bool_ ? boolean_mask(*this, index) : tandem::gather(*this, index);
}
Tensor Tensor::operator[](std::initializer_list<AxisIndex> indices) const {
  if (std::none_of(indices.begin(), indices.end(), [](const AxisIndex& i) { return !i.single(); }))
    throw InvalidArgumentError(
        "[operator[]] expected a Slice among the indices in braces, got positions alone, which "
        "NumPy "
        "takes for rows: write x(1, 2) for one element, or x[constant({1, 2})] for rows");
  return at(indices);
}
Tensor Tensor::clone() const { return identity(*this); }
Tensor Tensor::index_select(std::int64_t axis, const Tensor& indices) const {
  return tandem::gather(*this, indices, axis);
}
Tensor Tensor::slice(Dim begin, Dim end) const { return slice_rows(*this, begin, end); }
Tensor Tensor::slice(std::int64_t axis, Dim begin, Dim end, std::int64_t step) const {
  std::vector<AxisIndex> indices(axis_of(*this, axis), AxisIndex(Slice{}));
  indices.emplace_back(Slice{begin, end, step});
  return at(indices);
}
Tensor Tensor::slice(std::int64_t axis, Dim begin, std::nullopt_t, std::int64_t step) const {
  std::vector<AxisIndex> indices(axis_of(*this, axis), AxisIndex(Slice{}));
  indices.emplace_back(Slice(begin, std::nullopt, step));
  return at(indices);
}
Tensor Tensor::select(std::int64_t axis, Dim index) const {
  std::vector<AxisIndex> indices(axis_of(*this, axis), AxisIndex(Slice{}));
  indices.emplace_back(index);
  return at(indices);
}
Tensor Tensor::transpose(std::int64_t axis, std::int64_t other) const {
  Dims order;
  for (int i = 0; i < rank(); ++i) order.push_back(i);
  std::swap(order[static_cast<int>(axis_of(*this, axis))],
            order[static_cast<int>(axis_of(*this, other))]);
  return tandem::transpose(*this, order);
}
Tensor Tensor::eq(const Tensor& other) const { return tandem::equal(*this, other); }
Tensor Tensor::ne(const Tensor& other) const { return not_equal(*this, other); }
Tensor Tensor::lt(const Tensor& other) const { return less(*this, other); }
Tensor Tensor::le(const Tensor& other) const { return less_equal(*this, other); }
Tensor Tensor::gt(const Tensor& other) const { return greater(*this, other); }
Tensor Tensor::ge(const Tensor& other) const { return greater_equal(*this, other); }
Tensor Tensor::eq(double other) const { return tandem::equal(*this, other); }
Tensor Tensor::eq(Dim other) const { return tandem::equal(*this, other); }
Tensor Tensor::ne(double other) const { return not_equal(*this, other); }
Tensor Tensor::ne(Dim other) const { return not_equal(*this, other); }
Tensor Tensor::lt(double other) const { return less(*this, other); }
Tensor Tensor::lt(Dim other) const { return less(*this, other); }
Tensor Tensor::le(double other) const { return less_equal(*this, other); }
Tensor Tensor::le(Dim other) const { return less_equal(*this, other); }
Tensor Tensor::gt(double other) const { return greater(*this, other); }
Tensor Tensor::gt(Dim other) const { return greater(*this, other); }
Tensor Tensor::ge(double other) const { return greater_equal(*this, other); }
Tensor Tensor::ge(Dim other) const { return greater_equal(*this, other); }
Tensor Tensor::add(const Tensor& other) const { return tandem::add(*this, other); }
Tensor Tensor::sub(const Tensor& other) const { return subtract(*this, other); }
Tensor Tensor::mul(const Tensor& other) const { return multiply(*this, other); }
Tensor Tensor::div(const Tensor& other) const { return divide(*this, other); }
Tensor Tensor::add(double other) const { return tandem::add(*this, other); }
Tensor Tensor::add(Dim other) const { return tandem::add(*this, other); }
Tensor Tensor::sub(double other) const { return subtract(*this, other); }
Tensor Tensor::sub(Dim other) const { return subtract(*this, other); }
Tensor Tensor::mul(double other) const { return multiply(*this, other); }
Tensor Tensor::mul(Dim other) const { return multiply(*this, other); }
Tensor Tensor::div(double other) const { return divide(*this, other); }
Tensor Tensor::div(Dim other) const { return divide(*this, other); }
Tensor Tensor::neg() const { return negative(*this); }
Tensor Tensor::var(bool unbiased) const { return flatten().var_along(0, unbiased, false); }
Tensor Tensor::std(bool unbiased) const { return flatten().std_along(0, unbiased, false); }
Tensor Tensor::var_along(std::int64_t axis, bool unbiased, bool keepdims) const {
  const Tensor variance = reduce_variance(*this, axis, keepdims);
  return unbiased ? corrected(variance, size_word(axis), false) : variance;
}
Tensor Tensor::std_along(std::int64_t axis, bool unbiased, bool keepdims) const {
  const Tensor deviation = reduce_std(*this, axis, keepdims);
  return unbiased ? corrected(deviation, size_word(axis), true) : deviation;
}
std::vector<Tensor> Tensor::split(std::int64_t size, std::int64_t axis) const {
  const std::int64_t all = dim::known("split", size_word(axis), "the number of results");
  if (size < 1) fail<InvalidArgumentError>("[split] expected parts of at least 1, got {}", size);
  std::vector<std::int64_t> sizes;
  for (std::int64_t begin = 0; begin < all; begin += size)
    sizes.push_back(std::min(size, all - begin));
  if (sizes.empty()) sizes.push_back(0);
  return tandem::split(*this, sizes, axis);
}
std::vector<Tensor> Tensor::chunk(std::int64_t parts, std::int64_t axis) const {
  const std::int64_t size = dim::known("chunk", size_word(axis), "the number of results");
  if (parts < 1) fail<InvalidArgumentError>("[chunk] expected at least 1 part, got {}", parts);
  const std::int64_t each = std::max<std::int64_t>(1, (size + parts - 1) / parts);
  std::vector<std::int64_t> sizes;
  for (std::int64_t begin = 0; begin < size; begin += each)
    sizes.push_back(std::min(each, size - begin));
  if (sizes.empty()) sizes.push_back(0);
  return tandem::split(*this, sizes, axis);
}
namespace {

// For each element of the matrices of x, its column minus its row.
Tensor diagonals_of(const Tensor& x, const char* function) {
  if (x.rank() < 2)
    fail<ShapeError>("[{}] expected matrices, got shape {}", function, x.shape().to_string());
  return range(x.size_word(-1)) - expand_dims(range(x.size_word(-2)), 1);
}

}  // namespace

Tensor Tensor::diagonal(std::int64_t offset, std::int64_t axis, std::int64_t other) const {
  const auto row = static_cast<std::int64_t>(axis_of(*this, axis)),
             column = static_cast<std::int64_t>(axis_of(*this, other));
  if (row == column)
    fail<InvalidArgumentError>("[diagonal] expected two different axes, got {} and {}", axis,
                               other);
  Dims order;
  for (int i = 0; i < rank(); ++i)
    if (i != row && i != column) order.push_back(i);
  order.push_back(row);
  order.push_back(column);
  const Tensor matrices = tandem::transpose(*this, order);
  const Tensor chosen =
      tandem::equal(diagonals_of(matrices, "diagonal"), static_cast<double>(offset));
  const Tensor rows = reduce_sum(where(chosen, matrices, zeros_like(matrices)), -1);
  const std::int64_t first = std::max<std::int64_t>(0, -offset),
                     rows_left = dim::difference(size_word(row), first),
                     columns =
                         dim::difference(size_word(column), std::max<std::int64_t>(0, offset)),
                     count = dim::max(0, dim::min(rows_left, columns));
  const Tensor result = rows.slice(-1, first, dim::sum(first, count));
  return dtype() == bool_ ? cast(result, bool_) : result;
}

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return where(less_equal(diagonals_of(x, "tril"), static_cast<double>(diagonal)), x,
               zeros_like(x));
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return where(greater_equal(diagonals_of(x, "triu"), static_cast<double>(diagonal)), x,
               zeros_like(x));
}
Tensor detail::with_options(Tensor made, const CreationOptions& options) {
  if (!options.device.empty()) made = made.to(options.device);
  return options.requires_grad ? made.set_requires_grad() : made;
}

void Tensor::zero_() && {
  TensorImpl& impl = impl_of(*this);
  if (!impl.of_leaf)
    throw FailedPreconditionError(
        "[zero_] expected a tensor that grad() has returned, and no gradient in a buffer, as under "
        "DistributedDataParallel; operations never change other tensors: write w.zero_grad() or "
        "x = zeros_like(x)");
  Tensor zero = zeros_like(*this);
  if (!impl.symbol) zero = zero.to(device());
  const TensorImpl& from = impl_of(zero);
  impl.storage = from.storage;
  impl.symbol = from.symbol;
  impl.offset = from.offset;
  impl.grad = {};
}

Tensor& detail::replace(Tensor& a, Tensor result) {
  const GradEdge& edge = impl_of(a).grad;
  if (!context.records && edge && !edge.of_variable && a.is_leaf()) {
    if (is_tracked(result)) result = make_alias(result);
    impl_of(result).grad = edge;
  }
  return a = std::move(result);
}

}  // namespace tandem
