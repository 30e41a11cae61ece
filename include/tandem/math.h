/// @file
/// Element-wise math, comparisons, reductions and matrix products. Named and defined as in
/// TensorFlow.
///
/// Binary operations broadcast as in NumPy and need operands of one dtype (throw
/// InvalidArgumentError otherwise; use cast()). A number next to a tensor takes the tensor's dtype
/// and must be representable in it.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/dim_math.h"
#include "tandem/tensor.h"

namespace tandem {

// --- arithmetic ---
/// @{
/// Element-wise sum, difference and product.
[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor subtract(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor multiply(const Tensor& a, const Tensor& b);
/// @}
/// Element-wise quotient. Integers round toward zero; throws InvalidArgumentError for an integer
/// division by zero.
[[nodiscard]] Tensor divide(const Tensor& a, const Tensor& b);
/// @{
/// Quotient rounded toward negative infinity (no gradient), and its remainder: a = floor_divide(a,
/// b) * b + floor_mod(a, b), as in Python. So floor_divide(1, 0.1) is 9, with a remainder of
/// 0.0999..., although 1 / 0.1 rounds to 10.
[[nodiscard]] Tensor floor_divide(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor floor_mod(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor floor_divide(const Tensor& a, double b);
[[nodiscard]] Tensor floor_mod(const Tensor& a, double b);
inline Tensor operator%(const Tensor& a, const Tensor& b) { return floor_mod(a, b); }
inline Tensor operator%(const Tensor& a, double b) { return floor_mod(a, b); }
/// @}
/// a to the power of b. Throws InvalidArgumentError for a negative exponent of integers. The
/// gradient with respect to b is zero where a <= 0 and the result is finite. The one with respect
/// to a is zero where both are zero.
[[nodiscard]] Tensor pow(const Tensor& a, const Tensor& b);
/// @{
/// Element-wise maximum and minimum. NaN if either operand is NaN. Where both are equal, the
/// gradient goes to a.
[[nodiscard]] Tensor maximum(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor minimum(const Tensor& a, const Tensor& b);
/// @}
[[nodiscard]] Tensor squared_difference(const Tensor& a, const Tensor& b);  ///< (a - b)^2
/// Sum of tensors of one shape and dtype, in the given order. As tf.add_n.
[[nodiscard]] Tensor add_n(TensorList tensors);

/// @{
/// The same with a number.
[[nodiscard]] Tensor add(const Tensor& a, double b);
[[nodiscard]] Tensor subtract(const Tensor& a, double b);
[[nodiscard]] Tensor subtract(double a, const Tensor& b);
[[nodiscard]] Tensor multiply(const Tensor& a, double b);
[[nodiscard]] Tensor divide(const Tensor& a, double b);
[[nodiscard]] Tensor divide(double a, const Tensor& b);
[[nodiscard]] Tensor pow(const Tensor& a, double b);
[[nodiscard]] Tensor pow(double a, const Tensor& b);
[[nodiscard]] Tensor maximum(const Tensor& a, double b);
[[nodiscard]] Tensor minimum(const Tensor& a, double b);
/// @}

/// @{
/// Element-wise arithmetic.
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, double b) { return subtract(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return multiply(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return multiply(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return divide(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return divide(a, b); }
/// @}

namespace detail {
// a = result, for operators that change `a`.
Tensor& replace(Tensor& a, Tensor result);
}  // namespace detail
/// @{
/// Makes `a` a handle to the result; other handles keep the old elements. Under NoGradScope a leaf
/// stays one, with its grad(), so that `w -= rate * w.grad()` is a step.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return detail::replace(a, add(a, b)); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return detail::replace(a, subtract(a, b)); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return detail::replace(a, multiply(a, b)); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return detail::replace(a, divide(a, b)); }
inline Tensor& operator+=(Tensor& a, double b) { return detail::replace(a, add(a, b)); }
inline Tensor& operator-=(Tensor& a, double b) { return detail::replace(a, subtract(a, b)); }
inline Tensor& operator*=(Tensor& a, double b) { return detail::replace(a, multiply(a, b)); }
inline Tensor& operator/=(Tensor& a, double b) { return detail::replace(a, divide(a, b)); }
/// @}

// --- element by element ---
[[nodiscard]] Tensor negative(const Tensor& x);                   ///< -x
inline Tensor operator-(const Tensor& x) { return negative(x); }  ///< -x
[[nodiscard]] Tensor abs(const Tensor& x);                        ///< |x|
[[nodiscard]] Tensor sign(const Tensor& x);        ///< -1, 0 or 1; its gradient is zero
[[nodiscard]] Tensor square(const Tensor& x);      ///< x^2
[[nodiscard]] Tensor sqrt(const Tensor& x);        ///< square root
[[nodiscard]] Tensor rsqrt(const Tensor& x);       ///< 1 / sqrt(x)
[[nodiscard]] Tensor reciprocal(const Tensor& x);  ///< 1 / x
[[nodiscard]] Tensor exp(const Tensor& x);         ///< e^x
[[nodiscard]] Tensor expm1(const Tensor& x);       ///< e^x - 1, accurate near 0
[[nodiscard]] Tensor log(const Tensor& x);         ///< natural logarithm
[[nodiscard]] Tensor log1p(const Tensor& x);       ///< log(1 + x), accurate near 0
[[nodiscard]] Tensor log2(const Tensor& x);        ///< logarithm to base 2
[[nodiscard]] Tensor log10(const Tensor& x);       ///< logarithm to base 10
[[nodiscard]] Tensor sin(const Tensor& x);         ///< sine
[[nodiscard]] Tensor cos(const Tensor& x);         ///< cosine
[[nodiscard]] Tensor tan(const Tensor& x);         ///< tangent
[[nodiscard]] Tensor tanh(const Tensor& x);        ///< hyperbolic tangent
[[nodiscard]] Tensor sigmoid(const Tensor& x);     ///< 1 / (1 + exp(-x))
[[nodiscard]] Tensor erf(const Tensor& x);         ///< error function
/// @{
/// Round down, up, or to the nearest integer with halves to even. No gradient.
[[nodiscard]] Tensor floor(const Tensor& x);
[[nodiscard]] Tensor ceil(const Tensor& x);
[[nodiscard]] Tensor round(const Tensor& x);
/// @}
[[nodiscard]] Tensor is_nan(const Tensor& x);     ///< true for NaN; a bool tensor
[[nodiscard]] Tensor is_finite(const Tensor& x);  ///< false for NaN and infinities; a bool tensor
[[nodiscard]] Tensor is_inf(const Tensor& x);     ///< whether elements are infinite
/// Converts to another dtype. Floating-point to integer truncates toward zero (unspecified where
/// out of range), integer to a smaller integer wraps around, and to bool gives x != 0. As tf.cast.
[[nodiscard]] Tensor cast(const Tensor& x, DType dtype);

// --- comparison: bool results ---
/// @{
/// Element-wise comparison; the result is a bool tensor.
[[nodiscard]] Tensor equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor not_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor less(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor less_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor greater(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor greater_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor equal(const Tensor& a, double b);
[[nodiscard]] Tensor not_equal(const Tensor& a, double b);
[[nodiscard]] Tensor less(const Tensor& a, double b);
[[nodiscard]] Tensor less_equal(const Tensor& a, double b);
[[nodiscard]] Tensor greater(const Tensor& a, double b);
[[nodiscard]] Tensor greater_equal(const Tensor& a, double b);
/// @}
/// @{
/// Element-wise comparison, as in PyTorch and TensorFlow. To compare handles, use
/// Tensor::same_as(). (Variables compare as handles.)
inline Tensor operator==(const Tensor& a, const Tensor& b) { return equal(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return not_equal(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return less(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return less_equal(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return greater(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }
inline Tensor operator==(const Tensor& a, double b) { return equal(a, b); }
inline Tensor operator!=(const Tensor& a, double b) { return not_equal(a, b); }
inline Tensor operator<(const Tensor& a, double b) { return less(a, b); }
inline Tensor operator<=(const Tensor& a, double b) { return less_equal(a, b); }
inline Tensor operator>(const Tensor& a, double b) { return greater(a, b); }
inline Tensor operator>=(const Tensor& a, double b) { return greater_equal(a, b); }
inline Tensor operator==(double a, const Tensor& b) { return equal(b, a); }
inline Tensor operator!=(double a, const Tensor& b) { return not_equal(b, a); }
inline Tensor operator<(double a, const Tensor& b) { return greater(b, a); }
inline Tensor operator<=(double a, const Tensor& b) { return greater_equal(b, a); }
inline Tensor operator>(double a, const Tensor& b) { return less(b, a); }
inline Tensor operator>=(double a, const Tensor& b) { return less_equal(b, a); }
/// @}
/// @{
/// Element-wise logic of bool tensors.
[[nodiscard]] Tensor logical_and(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_or(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_not(const Tensor& x);
inline Tensor operator&(const Tensor& a, const Tensor& b) { return logical_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return logical_or(a, b); }
inline Tensor operator~(const Tensor& x) { return logical_not(x); }
/// @}
/// Whether all elements are equal within atol + rtol * |b|, and the shapes and dtypes are equal.
/// NaN equals nothing, infinities themselves. Waits for the device. As torch.allclose.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8);
/// Elements of a where condition (bool) is true, else of b; all three broadcast. As tf.where.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// @{
/// The same with numbers, which take the dtype of the tensor; two numbers are float32. As
/// torch.where.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, double b);
[[nodiscard]] Tensor where(const Tensor& condition, double a, const Tensor& b);
[[nodiscard]] Tensor where(const Tensor& condition, double a, double b);
/// @}

// --- reductions ---
/// Optional axes of a reduction; converts from a list such as {0, 2}.
class Axes : public std::optional<Dims> {
 public:
  using std::optional<Dims>::optional;
  Axes() = default;
  /// The given axes, or all if there is no value.
  Axes(std::optional<Dims> axes) : std::optional<Dims>(std::move(axes)) {}  // NOLINT: implicit
  /// The given axes.
  Axes(std::initializer_list<std::int64_t> axes) : std::optional<Dims>(std::in_place, axes) {}
  /// One axis.
  template <detail::Integer Axis>
  Axes(Axis axis) : Axes({static_cast<std::int64_t>(axis)}) {}  // NOLINT: implicit
};

/// Options of reductions. As the arguments of tf.reduce_sum.
struct ReduceOptions {
  /// Axes to reduce; negative ones count from the end. Default: all.
  Axes axis{};
  bool keepdims = false;    ///< whether to keep reduced axes with size 1
  std::string_view name{};  ///< name of the operation in a graph
};
/// Sum over axes. As tf.reduce_sum.
///
/// All reductions have the dtype of x, except as noted. Sums of integers wrap around in that dtype,
/// as in TensorFlow: 300 ones of uint8 give 44. (PyTorch sums integers in int64; cast first for
/// that.) A sum of bools is their number, int64, and a mean the fraction that is true, float32.
/// float16 and bfloat16 accumulate in float32. The order of additions depends on the shape
/// only, so that the bits are the same for any number of threads. Without elements the result is 0
/// (product: 1; maximum: the lowest value; mean: NaN).
[[nodiscard]] Tensor reduce_sum(const Tensor& x, const ReduceOptions& options = {});
/// Mean; of floating-point elements or bools.
[[nodiscard]] Tensor reduce_mean(const Tensor& x, const ReduceOptions& options = {});
/// Product. Second derivatives are correct only if no element is zero.
[[nodiscard]] Tensor reduce_prod(const Tensor& x, const ReduceOptions& options = {});
/// @{
/// Maximum and minimum; NaN if any element is NaN. Equal extremes share the gradient.
[[nodiscard]] Tensor reduce_max(const Tensor& x, const ReduceOptions& options = {});
[[nodiscard]] Tensor reduce_min(const Tensor& x, const ReduceOptions& options = {});
/// @}
/// Whether any element is true; bool.
[[nodiscard]] Tensor reduce_any(const Tensor& x, const ReduceOptions& options = {});
/// Whether all elements are true; bool.
[[nodiscard]] Tensor reduce_all(const Tensor& x, const ReduceOptions& options = {});
/// @{
/// Population variance and standard deviation. float16 and bfloat16 are computed in float32. The
/// gradient of a standard deviation of 0 is zero.
[[nodiscard]] Tensor reduce_variance(const Tensor& x, const ReduceOptions& options = {});
[[nodiscard]] Tensor reduce_std(const Tensor& x, const ReduceOptions& options = {});
/// @}
/// Log(sum(exp(x))), without overflow.
[[nodiscard]] Tensor reduce_logsumexp(const Tensor& x, const ReduceOptions& options = {});
/// @{
/// Index (int64) of the largest or smallest element along `axis`: the first one of equals, and the
/// first NaN if there is one. Throws InvalidArgumentError for an axis of size 0. As tf.argmax and
/// tf.argmin.
[[nodiscard]] Tensor argmax(const Tensor& x, std::int64_t axis);
[[nodiscard]] Tensor argmin(const Tensor& x, std::int64_t axis);
[[nodiscard]] inline Tensor argmax(const Tensor& x, const AxisOptions& options) {
  return argmax(x, options.axis);
}
[[nodiscard]] inline Tensor argmin(const Tensor& x, const AxisOptions& options) {
  return argmin(x, options.axis);
}
/// @}
/// @{
/// The same of a vector. Throws InvalidArgumentError for another rank: without an axis TensorFlow
/// takes the first one, PyTorch and NumPy all elements, as x.argmax() does.
[[nodiscard]] Tensor argmax(const Tensor& x);
[[nodiscard]] Tensor argmin(const Tensor& x);
/// @}
/// @{
/// The same with `keepdims`: the axis remains, of size 1. As torch.argmax.
template <std::same_as<bool> KeepDims>
[[nodiscard]] Tensor argmax(const Tensor& x, std::int64_t axis, KeepDims keepdims) {
  return x.argmax(axis, keepdims);
}
template <std::same_as<bool> KeepDims>
[[nodiscard]] Tensor argmin(const Tensor& x, std::int64_t axis, KeepDims keepdims) {
  return x.argmin(axis, keepdims);
}
/// @}
/// @{
/// The largest or smallest elements along `axis`, and their positions as argmax() and argmin(). As
/// torch.max and torch.min with a dimension.
[[nodiscard]] ValuesAndIndices max(const Tensor& x, std::int64_t axis, bool keepdims = false);
[[nodiscard]] ValuesAndIndices min(const Tensor& x, std::int64_t axis, bool keepdims = false);
/// @}
/// The `k` largest elements along the last axis, the largest first, and their positions (int32),
/// the smaller position first of equals; NaN counts as largest. Reads x k times. Throws
/// InvalidArgumentError if the axis has fewer elements. As tf.math.top_k.
[[nodiscard]] ValuesAndIndices top_k(const Tensor& x, std::int64_t k = 1);
/// The `k` largest or smallest elements along `axis`, the most extreme first, and their positions
/// (int64). The largest are those of top_k(); the smallest come from sort(). As torch.topk.
[[nodiscard]] ValuesAndIndices topk(const Tensor& x, std::int64_t k, std::int64_t axis = -1,
                                    bool largest = true);
/// @{
/// The elements along `axis` in ascending or descending order, and their positions (int64), the
/// smaller position first of equals; NaN counts as largest. argsort() returns the positions alone.
/// The order is found on the host. As torch.sort and torch.argsort; tf.sort returns the values
/// alone, and a tensor can be made of the result.
[[nodiscard]] ValuesAndIndices sort(const Tensor& x, std::int64_t axis = -1,
                                    bool descending = false);
[[nodiscard]] Tensor argsort(const Tensor& x, std::int64_t axis = -1, bool descending = false);
/// Options of sort() and argsort().
struct SortOptions {
  std::int64_t axis = -1;   ///< the axis; negative ones count from the end
  bool descending = false;  ///< from the largest to the smallest
  /// TensorFlow's way to say it: "ASCENDING" or "DESCENDING", or empty for `descending`. Throws
  /// InvalidArgumentError for another text.
  std::string_view direction{};
};
namespace detail {
bool is_descending(const SortOptions& options);
}  // namespace detail
/// @{
/// The same, with options.
[[nodiscard]] inline ValuesAndIndices sort(const Tensor& x, const SortOptions& options) {
  return sort(x, options.axis, detail::is_descending(options));
}
[[nodiscard]] inline Tensor argsort(const Tensor& x, const SortOptions& options) {
  return argsort(x, options.axis, detail::is_descending(options));
}
/// @}
/// @}
/// Cumulative sum along `axis`. As tf.cumsum.
[[nodiscard]] Tensor cumsum(const Tensor& x, std::int64_t axis = 0);
/// The same, with the axis as an option.
[[nodiscard]] inline Tensor cumsum(const Tensor& x, const AxisOptions& options) {
  return cumsum(x, options.axis);
}

// --- matrices ---
/// Options of matmul(). As the arguments of tf.matmul.
struct MatMulOptions {
  bool transpose_a = false;  ///< whether to transpose the last two axes of a
  bool transpose_b = false;  ///< whether to transpose the last two axes of b
  std::string_view name{};   ///< name of the operation in a graph
};
/// Matrix product of [..., m, k] and [..., k, n]; leading axes broadcast. A vector is a row on the
/// left and a column on the right, and that axis is removed from the result, as in numpy.matmul; it
/// cannot be transposed. Floating-point only; float16 and bfloat16 accumulate in float32. As
/// tf.matmul.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& options = {});

/// Sum of products by Einstein's convention: `einsum("ij,jk->ik", a, b)` is a matrix product. Each
/// letter names an axis; letters that are not in the result are summed over. A letter twice in one
/// tensor is the diagonal. "..." stands for any number of axes, which broadcast, as do all whose
/// size is known to be 1. Without "->" the result has the axes of "..." and the letters that occur
/// once, in alphabetical order. Throws InvalidArgumentError for another equation, and ShapeError
/// for sizes that differ. As torch.einsum and tf.einsum.
[[nodiscard]] Tensor einsum(std::string_view equation, TensorList tensors);
/// The same with the tensors as arguments.
template <std::convertible_to<const Tensor&>... More>
[[nodiscard]] Tensor einsum(std::string_view equation, const Tensor& first, const More&... more) {
  return einsum(equation, TensorList(std::initializer_list<Tensor>{first, more...}));
}

/// Options of math::confusion_matrix().
struct ConfusionMatrixOptions {
  std::int64_t num_classes = -1;  ///< default: the largest class of both, plus 1, which is read
  Tensor weights{};               ///< undefined, or one weight per example
  DType dtype = int32;            ///< dtype of the result
};
/// Functions of tf.math that have no other name.
namespace math {
/// How many examples of class i (row) were predicted as class j (column): [num_classes,
/// num_classes]. Labels and predictions are vectors of integers. Throws InvalidArgumentError for a
/// class out of range. Computed on the host: throws FailedPreconditionError while a function is
/// traced. As tf.math.confusion_matrix.
[[nodiscard]] Tensor confusion_matrix(const Tensor& labels, const Tensor& predictions,
                                      const ConfusionMatrixOptions& options = {});
}  // namespace math

// --- norms and clipping ---
/// Euclidean norm over the given axes or all elements. Its gradient at zero is zero. As tf.norm.
[[nodiscard]] Tensor norm(const Tensor& x, const ReduceOptions& options = {});
/// Euclidean norm of all elements of all tensors; undefined tensors are ignored. A scalar of dtype
/// float32, or float64 if any tensor is float64. As tf.linalg.global_norm.
[[nodiscard]] Tensor global_norm(TensorList tensors);
/// Limits elements to [low, high]. As tf.clip_by_value.
[[nodiscard]] Tensor clip_by_value(const Tensor& x, double low, double high);
/// @{
/// Reductions over one axis or a list of axes: `reduce_sum(x, 1)`, `reduce_mean(x, {0, 1}, true)`.
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_sum(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_sum(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_sum(const Tensor& x, std::initializer_list<Axis> axes,
                                bool keepdims = false) {
  return reduce_sum(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_mean(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_mean(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_mean(const Tensor& x, std::initializer_list<Axis> axes,
                                 bool keepdims = false) {
  return reduce_mean(x,
                     ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_prod(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_prod(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_prod(const Tensor& x, std::initializer_list<Axis> axes,
                                 bool keepdims = false) {
  return reduce_prod(x,
                     ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_max(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_max(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_max(const Tensor& x, std::initializer_list<Axis> axes,
                                bool keepdims = false) {
  return reduce_max(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_min(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_min(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_min(const Tensor& x, std::initializer_list<Axis> axes,
                                bool keepdims = false) {
  return reduce_min(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_any(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_any(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_any(const Tensor& x, std::initializer_list<Axis> axes,
                                bool keepdims = false) {
  return reduce_any(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_all(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_all(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_all(const Tensor& x, std::initializer_list<Axis> axes,
                                bool keepdims = false) {
  return reduce_all(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_variance(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_variance(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_variance(const Tensor& x, std::initializer_list<Axis> axes,
                                     bool keepdims = false) {
  return reduce_variance(
      x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_std(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_std(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_std(const Tensor& x, std::initializer_list<Axis> axes,
                                bool keepdims = false) {
  return reduce_std(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_logsumexp(const Tensor& x, Axis axis, bool keepdims = false) {
  return reduce_logsumexp(x, ReduceOptions{.axis = axis, .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor reduce_logsumexp(const Tensor& x, std::initializer_list<Axis> axes,
                                      bool keepdims = false) {
  return reduce_logsumexp(
      x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
template <detail::Integer Axis>
[[nodiscard]] Tensor norm(const Tensor& x, std::initializer_list<Axis> axes,
                          bool keepdims = false) {
  return norm(x, ReduceOptions{.axis = Dims(axes.begin(), axes.end()), .keepdims = keepdims});
}
/// @}
/// @{
/// The norm of order `p`, of all elements or along an axis; infinity: the largest absolute value.
/// As torch.norm(x, p, dim), and as tf.norm and numpy.linalg.norm with an axis.
template <detail::Arithmetic P>
requires(!std::same_as<P, bool>) [[nodiscard]] Tensor norm(const Tensor& x, P p) {
  return x.norm(static_cast<double>(p));
}
template <detail::Arithmetic P, detail::Integer Axis>
requires(!std::same_as<P, bool>) [[nodiscard]] Tensor
    norm(const Tensor& x, P p, Axis axis, bool keepdims = false) {
  return x.norm(static_cast<double>(p), axis, keepdims);
}
/// @}
/// Scales x so that its norm is at most `clip_norm`. As tf.clip_by_norm.
[[nodiscard]] Tensor clip_by_norm(const Tensor& x, double clip_norm);
/// Result of clip_by_global_norm().
struct ClippedTensors {
  std::vector<Tensor> tensors{};  ///< the scaled tensors
  Tensor norm{};                  ///< the global norm before clipping
};
/// Scales all tensors by clip_norm / max(global_norm, clip_norm); an infinite norm makes all NaN.
/// Undefined tensors stay undefined. As tf.clip_by_global_norm.
ClippedTensors clip_by_global_norm(TensorList tensors, double clip_norm);

}  // namespace tandem
