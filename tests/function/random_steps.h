// The steps of random programs: each takes values of the program and returns one or several.
// Choices depend on the seed, shapes and dtypes alone. Values may be of any size, also 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tandem/tandem.h"

namespace tandem::testing {

using Tensors = std::vector<Tensor>;

class Choices {
 public:
  explicit Choices(std::uint32_t seed) : random_(seed) {}

  bool random_numbers = true;  // whether steps may have them
  bool control_flow = true;

  int pick(int count) { return static_cast<int>(random_() % static_cast<std::uint32_t>(count)); }
  template <class T>
  const T& of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(pick(static_cast<int>(values.size())))];
  }
  std::int64_t axis(const Tensor& x) { return pick(x.rank()) - (pick(2) == 0 ? x.rank() : 0); }
  Shape shape() {
    static constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 16, 33, 1, 2, 3, 0};
    Dims sizes;
    for (int axis = pick(4); axis >= 0; --axis) sizes.push_back(kSizes[pick(std::size(kSizes))]);
    return Shape(sizes);
  }

 private:
  std::mt19937 random_;
};

// ---- values of the shape, range or dtype that a step needs ----

// The elements of x, repeated or cut.
inline Tensor shaped(const Tensor& x, const Shape& shape) {
  const std::int64_t count = shape.num_elements();
  if (x.size() == 0) return broadcast_to(reduce_sum(x), shape);
  const Tensor flat = reshape(x, {-1});
  const Tensor enough = x.size() < count ? tile(flat, {(count + x.size() - 1) / x.size()}) : flat;
  return reshape(slice(enough, {0}, {count}), shape);
}

// The mean of a function of x. Without elements it is 0 and not NaN: a branch that is not taken
// adds a gradient of 0, whose product with NaN would be NaN in traced programs alone.
inline Tensor scalar_of(const Tensor& x) {
  return x.size() > 0 ? reduce_mean(tanh(x) + 0.0) : reduce_sum(x);
}

inline Tensor like(const Tensor& x, const Tensor& other) { return shaped(x, other.shape()); }

inline Tensor indices(const Tensor& x, std::int64_t limit, DType dtype) {
  const Tensor finite = where(is_finite(x), x, zeros_like(x));
  return cast(clip_by_value(abs(finite) * 3.0, 0.0, static_cast<double>(limit - 1)), dtype);
}

inline bool broadcasts(const Tensor& x, const Tensor& y) {
  for (int i = 1; i <= std::min(x.rank(), y.rank()); ++i) {
    const std::int64_t a = x.dim(-i), b = y.dim(-i);
    if (a != b && a != 1 && b != 1) return false;
  }
  return true;
}

// ---- steps ----

inline Tensor unary_step(Choices& choices, const Tensor& x) {
  switch (choices.pick(34)) {
    case 0: return tanh(x);
    case 1: return sigmoid(x);
    case 2: return exp(clip_by_value(x, -4.0, 4.0));
    case 3: return sqrt(abs(x));
    case 4: return log1p(square(x));
    case 5: return sin(x) + cos(x);
    case 6: return erf(x);
    case 7: return nn::relu(x);
    case 8: return nn::gelu(x, choices.pick(2) == 0);
    case 9: return floor(x) + x * 0.5;
    case 10: return cast(cast(x, choices.of(std::vector{float16, bfloat16, float64})), x.dtype());
    case 11: return where(greater(x, 0.25), x, negative(x));
    case 12: return x * 1.5 - 0.25;
    case 13: return 2.0 - x / 3.0;
    case 14: return nn::leaky_relu(x, 0.1);
    case 15: return nn::elu(x, choices.pick(2) == 0 ? 1.0 : 0.7);
    case 16: return nn::selu(x);
    case 17: return nn::swish(x);
    case 18: return nn::softplus(x);
    case 19: return nn::relu6(x);
    case 20: return expm1(clip_by_value(x, -3.0, 3.0)) * sign(x);
    case 21: return rsqrt(abs(x) + 1.0);
    case 22: return reciprocal(square(x) + 0.5);
    case 23: return log(abs(x) + 0.125);
    case 24: return pow(abs(x) + 0.1, choices.of(std::vector{1.5, 2.0, 3.0, -1.0}));
    case 25: return ceil(x) - round(x * 2.0);
    case 26: return where(logical_and(is_finite(x), logical_not(is_nan(x))), x, ones_like(x));
    case 27: return where(logical_or(less(x, -0.5), greater_equal(x, 0.5)), x, x * x);
    case 28: return stop_gradient(x) * 0.5 + identity(x);
    case 29: return maximum(x, -0.5) - minimum(x, 0.5);
    case 30: return 1.5 / (abs(x) + 1.0);
    case 31: return cast(not_equal(x, 0.0), x.dtype()) + cast(equal(x, 1.0), x.dtype());
    case 32: return cast(less_equal(cast(indices(x, 5, int32), int64), 2.0), x.dtype());
    default: return clip_by_norm(x, 2.0);
  }
}

// Uses both values if their shapes broadcast; otherwise one, and a scalar made of the other.
inline Tensor binary_step(Choices& choices, const Tensor& x, const Tensor& other) {
  const Tensor y = broadcasts(x, other) ? other : scalar_of(other);
  switch (choices.pick(16)) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return x / (abs(y) + 1.0);
    case 4: return maximum(x, y);
    case 5: return squared_difference(x, y);
    case 6: return where(less(x, y), x, y);
    case 7: return minimum(x, y);
    case 8: return pow(abs(x) + 0.5, tanh(y));
    case 9: return floor_divide(x, abs(y) + 1.0);
    case 10: return floor_mod(x, abs(y) + 1.0);
    case 11: return where(logical_and(equal(x, y), less_equal(x, y)), x * y, x + y);
    case 12: return where(logical_or(not_equal(x, y), greater_equal(x, y)), x - y, y);
    case 13: return cast(greater(x, y), x.dtype()) * x;
    case 14: return tanh(x) * y + x;
    default: return nn::sigmoid_cross_entropy(like(sigmoid(y), x), x);
  }
}

// Sums of three and more values, some of which are computed in chains, and one of which may occur
// twice.
inline Tensor sum_step(Choices& choices, const Tensor& x, const Tensors& values) {
  Tensors terms;
  for (int count = 2 + choices.pick(4); count >= 0; --count) {
    const Tensor term = choices.pick(4) == 0 ? x : like(choices.of(values), x);
    terms.push_back(choices.pick(2) == 0 ? term : unary_step(choices, term));
    if (!(terms.back().shape() == x.shape())) terms.back() = like(terms.back(), x);
  }
  return add_n(terms);
}

inline Tensor reduce_step(Choices& choices, const Tensor& x) {
  ReduceOptions options{.keepdims = choices.pick(2) == 0};
  if (x.rank() > 0 && choices.pick(3) > 0) options.axis = Dims{choices.axis(x)};
  const Tensor some = x.size() > 0 ? x : ones({2}, {.dtype = x.dtype()});
  if (x.size() == 0) options.axis = Axes();
  const std::int64_t axis = x.rank() > 0 ? choices.axis(x) : 0;
  switch (choices.pick(15)) {
    case 0: return reduce_sum(x, options);
    case 1: return reduce_mean(tanh(some), options);
    case 2: return reduce_max(some, options);
    case 3: return reduce_min(some, options);
    case 4: return reduce_logsumexp(clip_by_value(x, -9.0, 9.0), options);
    case 5: return reduce_prod(tanh(x), options);
    case 6: return reduce_variance(x, options);
    case 7: return reduce_std(x, options);
    case 8: return norm(x, options);
    case 9: return cast(reduce_any(greater(x, 1.0), options), x.dtype());
    case 10: return cast(reduce_all(greater(x, -1.0), options), x.dtype());
    case 11: return x.rank() > 0 && x.size() > 0 ? cast(argmax(x, axis), x.dtype()) : x;
    case 12: return x.rank() > 0 && x.size() > 0 ? cast(argmin(x, axis), x.dtype()) : x;
    case 13: return x.rank() > 0 ? cast(argsort(x, axis), x.dtype()) : x;
    default: return x.rank() > 0 ? cumsum(x, axis) : x;
  }
}

inline Tensors rearrange_step(Choices& choices, const Tensor& x, const Tensor& y) {
  if (x.rank() == 0) return {broadcast_to(x, {choices.pick(4)})};
  const std::int64_t axis = choices.axis(x), size = x.dim(axis);
  const bool grows = x.rank() < 4 && x.size() < 4096;
  switch (choices.pick(18)) {
    case 0: return {reshape(x, {-1})};
    case 1: return {transpose(x)};
    case 2: return {slice_rows(x, 0, (x.dim(0) + 1) / 2)};
    case 3: return {grows ? concat({x, like(y, x), x}, axis) : x};
    case 4: return {grows ? stack({x, like(y, x)}, choices.pick(2) - 1) : x};
    case 5: return {reverse(x, {axis})};
    case 6: return {x.rank() == 2 ? pad(x, {{1, 0}, {0, 2}}, choices.pick(2)) : identity(x)};
    case 7: return {size > 0 ? gather(x, indices(shaped(y, {3}), size, int64), axis) : x};
    case 8: return {grows && x.rank() == 2 ? tile(x, {2, 1}) : squeeze(x)};
    case 9: return {grows ? expand_dims(x, choices.pick(2) - 1) : x};
    case 10: return split(x, {size / 2, size - size / 2}, axis);
    case 11: return size > 0 ? split(x, size, {.axis = axis}) : Tensors{x};
    case 12: return size > 0 && size < 4 ? unstack(x, axis) : Tensors{x};
    case 13: return {x(Slice(None, None, choices.pick(2) == 0 ? 2 : -1))};
    case 14: return {x.dim(0) > 0 ? x[-1] : x};
    case 15: return {ensure_shape(x, x.shape()) + broadcast_to(scalar_of(y), x.shape())};
    case 16: return {size > 0 ? scatter(x, axis, indices(x, size, int64), like(y, x)) : x};
    default: return {nn::embedding_lookup(shaped(x, {5, 3}), indices(shaped(y, {4}), 5, int32))};
  }
}

}  // namespace tandem::testing
