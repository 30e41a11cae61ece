// Element-wise mathematics, comparison, reductions and matrix products.
//
// Binary operations broadcast as NumPy does and want one dtype (InvalidArgumentError otherwise;
// cast first). A number beside a tensor takes the tensor's dtype; it must be representable there.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

// --- arithmetic ---
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
// Floating types: true division. Integers: rounds toward zero, division by zero is
// InvalidArgumentError.
Tensor divide(const Tensor& a, const Tensor& b);
// Rounds toward negative infinity (no gradient flows back); and the remainder that goes with it:
// a = floor_divide(a, b) * b + floor_mod(a, b), as in Python. So floor_divide(1, 0.1) is 9, with a
// remainder of 0.0999..., though 1 / 0.1 rounds to 10.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_mod(const Tensor& a, const Tensor& b);
// Integers: an exponent below 0 is InvalidArgumentError. The gradient with respect to b is zero
// where a is not positive, and that with respect to a where both are zero.
Tensor pow(const Tensor& a, const Tensor& b);
// NaN on either side gives NaN. Where both are equal, the gradient goes to a.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor squared_difference(const Tensor& a, const Tensor& b);
// The sum of tensors of one shape and dtype, in the order given.
Tensor add_n(TensorList tensors);

Tensor add(const Tensor& a, double b);
Tensor subtract(const Tensor& a, double b);
Tensor subtract(double a, const Tensor& b);
Tensor multiply(const Tensor& a, double b);
Tensor divide(const Tensor& a, double b);
Tensor divide(double a, const Tensor& b);
Tensor pow(const Tensor& a, double b);
Tensor maximum(const Tensor& a, double b);
Tensor minimum(const Tensor& a, double b);

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

/// `a` becomes a handle on the result; other handles keep the old elements.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a = add(a, b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a = subtract(a, b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a = multiply(a, b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a = divide(a, b); }
inline Tensor& operator+=(Tensor& a, double b) { return a = add(a, b); }
inline Tensor& operator-=(Tensor& a, double b) { return a = subtract(a, b); }
inline Tensor& operator*=(Tensor& a, double b) { return a = multiply(a, b); }
inline Tensor& operator/=(Tensor& a, double b) { return a = divide(a, b); }

// --- element by element ---
Tensor negative(const Tensor& x);
inline Tensor operator-(const Tensor& x) { return negative(x); }
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);  // its gradient is zero
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
// No gradient flows back through these three.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);      // halves to even
Tensor is_nan(const Tensor& x);     // bool
Tensor is_finite(const Tensor& x);  // bool
// Converts; floating to integer truncates toward zero (unspecified where the integer cannot hold
// it), integer to a smaller integer wraps, anything to bool asks for non-zero.
Tensor cast(const Tensor& x, DType dtype);

// --- comparison: bool results ---
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, double b);
Tensor not_equal(const Tensor& a, double b);
Tensor less(const Tensor& a, double b);
Tensor less_equal(const Tensor& a, double b);
Tensor greater(const Tensor& a, double b);
Tensor greater_equal(const Tensor& a, double b);
/// Element by element, as in PyTorch and TensorFlow. Whether two handles are one tensor,
/// Tensor::same_as() tells. (Variables compare as handles.)
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
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
// a where condition (bool) holds, else b; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// --- reductions ---
// Axes as options take them, {0, 2} among other ways.
class Axes : public std::optional<Dims> {
 public:
  using std::optional<Dims>::optional;
  Axes() = default;
  Axes(std::optional<Dims> axes) : std::optional<Dims>(std::move(axes)) {}  // NOLINT: implicit
  Axes(std::initializer_list<std::int64_t> axes) : std::optional<Dims>(std::in_place, axes) {}
};

struct ReduceOptions {
  // Axes to reduce, negative ones counting from the end; not given: all.
  Axes axis{};
  bool keepdims = false;
  std::string_view name{};
};
// Results have the dtype of `x`. Sums of integers wrap around in that dtype, as in TensorFlow: 300
// ones of uint8 are 44. (PyTorch sums integers in int64: cast first to have that.)
// Sums of float16 and bfloat16 are kept in float32. The order depends on the shape alone: the same
// bits for any number of threads. No elements at all give 0 (product: 1; maximum: the lowest value;
// mean: NaN).
Tensor reduce_sum(const Tensor& x, const ReduceOptions& options = {});
Tensor reduce_mean(const Tensor& x, const ReduceOptions& options = {});  // floating types
// Second derivatives hold only where no element is zero.
Tensor reduce_prod(const Tensor& x, const ReduceOptions& options = {});
// NaN wins. Several elements that are the extremum share its gradient.
Tensor reduce_max(const Tensor& x, const ReduceOptions& options = {});
Tensor reduce_min(const Tensor& x, const ReduceOptions& options = {});
Tensor reduce_any(const Tensor& x, const ReduceOptions& options = {});  // bool
Tensor reduce_all(const Tensor& x, const ReduceOptions& options = {});  // bool
// Population variance and standard deviation; of float16 and bfloat16 computed in float32. No
// gradient flows back from a deviation of 0.
Tensor reduce_variance(const Tensor& x, const ReduceOptions& options = {});
Tensor reduce_std(const Tensor& x, const ReduceOptions& options = {});
// log(sum(exp(x))), without overflow.
Tensor reduce_logsumexp(const Tensor& x, const ReduceOptions& options = {});
// The index of the largest (smallest) element along `axis`, the first of equals, the first NaN
// where there is one; int64. An axis of size 0 is InvalidArgumentError.
Tensor argmax(const Tensor& x, std::int64_t axis = 0);
Tensor argmin(const Tensor& x, std::int64_t axis = 0);
// Running sums along `axis`.
Tensor cumsum(const Tensor& x, std::int64_t axis = 0);

// --- matrices ---
struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  std::string_view name{};
};
// The product of [..., m, k] and [..., k, n]; leading axes broadcast. Floating types; sums of
// float16 and bfloat16 products are kept in float32.
Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& options = {});

// --- norms and clipping ---
// The Euclidean norm over all elements or the axes given. Its gradient at zero is zero.
Tensor norm(const Tensor& x, const ReduceOptions& options = {});
// The Euclidean norm of all elements of all tensors, undefined ones left out. A scalar of float32,
// or of float64 if any of the tensors is float64.
Tensor global_norm(TensorList tensors);
Tensor clip_by_value(const Tensor& x, double low, double high);
// x scaled down so that its norm is at most `clip_norm`.
Tensor clip_by_norm(const Tensor& x, double clip_norm);
struct ClippedTensors {
  std::vector<Tensor> tensors{};
  Tensor norm{};  // before clipping
};
// All scaled by clip_norm / max(global_norm, clip_norm). Undefined tensors pass through.
ClippedTensors clip_by_global_norm(TensorList tensors, double clip_norm);

}  // namespace tandem
