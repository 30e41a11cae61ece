// Activations that are made of others.
#include "tandem/activations.h"

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::nn {
namespace {

void expect_floating(const char* what, const Tensor& x) {
  if (!is_floating(x.dtype()))
    fail<DTypeError>("[{}] expected a floating dtype, got {}", what, name_of(x.dtype()));
}

}  // namespace

// Without adding 3 to numbers near the limits: in 16 bits 2.99 + 3 is 6.
Tensor hard_sigmoid(const Tensor& x) {
  expect_floating("hard_sigmoid", x);
  return where(greater_equal(abs(x), 3.0), cast(greater(x, 0.0), x.dtype()), (x + 3.0) / 6.0);
}
Tensor hard_swish(const Tensor& x) { return x * hard_sigmoid(x); }
Tensor hard_tanh(const Tensor& x, double low, double high) { return clip_by_value(x, low, high); }
Tensor mish(const Tensor& x) { return x * tanh(softplus(x)); }
Tensor softsign(const Tensor& x) {
  expect_floating("softsign", x);
  return x / (abs(x) + 1.0);
}
Tensor log_sigmoid(const Tensor& x) { return negative(softplus(negative(x))); }

Tensor celu(const Tensor& x, double alpha) {
  if (!(alpha > 0.0)) fail<InvalidArgumentError>("[celu] expected a positive alpha, got {}", alpha);
  return alpha == 1.0 ? elu(x) : elu(x / alpha) * alpha;
}

Tensor squareplus(const Tensor& x, double b) {
  if (!(b >= 0.0)) fail<InvalidArgumentError>("[squareplus] expected a b of 0 or more, got {}", b);
  return (x + sqrt(square(x) + b)) * 0.5;
}

Tensor sparse_plus(const Tensor& x) {
  expect_floating("sparse_plus", x);
  return square(clip_by_value(x, -1.0, 1.0) + 1.0) * 0.25 + relu(x - 1.0);
}
Tensor sparse_sigmoid(const Tensor& x) {
  expect_floating("sparse_sigmoid", x);
  return (clip_by_value(x, -1.0, 1.0) + 1.0) * 0.5;
}
Tensor tanh_shrink(const Tensor& x) { return x - tanh(x); }

Tensor hard_shrink(const Tensor& x, double threshold) {
  expect_floating("hard_shrink", x);
  return where(less_equal(abs(x), threshold), 0.0, x);
}
Tensor soft_shrink(const Tensor& x, double threshold) {
  if (!(threshold >= 0.0))
    fail<InvalidArgumentError>("[soft_shrink] expected a threshold of 0 or more, got {}",
                               threshold);
  expect_floating("soft_shrink", x);
  return x - clip_by_value(x, -threshold, threshold);
}
Tensor threshold(const Tensor& x, double threshold, double value) {
  return where(less_equal(x, threshold), value, x);
}

Tensor glu(const Tensor& x, std::int64_t axis) {
  if (!dim::may_be_multiple(x.dim(axis), 2))
    fail<ShapeError>("[glu] expected an even size of axis {}, got shape {}", axis,
                     x.shape().to_string());
  const std::vector<Tensor> halves = split(x, 2, {.axis = axis});
  return halves[0] * sigmoid(halves[1]);
}
Tensor softmin(const Tensor& x, std::int64_t axis) { return softmax(negative(x), axis); }

namespace functional {

Tensor hardsigmoid(const Tensor& x) { return hard_sigmoid(x); }
Tensor hardswish(const Tensor& x) { return hard_swish(x); }
Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  return hard_tanh(x, min_val, max_val);
}
Tensor hardshrink(const Tensor& x, double lambd) { return hard_shrink(x, lambd); }
Tensor softshrink(const Tensor& x, double lambd) { return soft_shrink(x, lambd); }
Tensor tanhshrink(const Tensor& x) { return tanh_shrink(x); }
Tensor logsigmoid(const Tensor& x) { return log_sigmoid(x); }

Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (!(beta > 0.0))
    fail<InvalidArgumentError>("[softplus] expected a positive beta, got {}", beta);
  const Tensor scaled = beta == 1.0 ? x : x * beta;
  const Tensor y = beta == 1.0 ? nn::softplus(x) : nn::softplus(scaled) / beta;
  return where(greater(scaled, threshold), x, y);
}

Tensor gelu(const Tensor& x, std::string_view approximate) {
  if (approximate != "none" && approximate != "tanh")
    fail<InvalidArgumentError>("[gelu] expected the approximation 'none' or 'tanh', got '{}'",
                               approximate);
  return nn::gelu(x, approximate == "tanh");
}

Tensor prelu(const Tensor& input, const Tensor& weight) {
  Tensor x = input, slopes = weight;
  const bool one = weight.rank() == 1 && dim::may_equal(weight.dim(0), 1);
  const bool shared = x.rank() == 0 ? one : x.rank() == 1 || weight.shape() == Shape{1};
  if (weight.rank() == 1 && !shared) {
    Dims sizes;
    for (int axis = 0; axis < x.rank(); ++axis) sizes.push_back(axis == 1 ? -1 : 1);
    if (x.rank() < 2 || !dim::may_equal(weight.shape().word(0), x.shape().word(1)))
      fail<ShapeError>("[prelu] expected one weight per element of axis 1 of shape {}, got {}",
                       x.shape().to_string(), weight.shape().to_string());
    x = of_size("prelu", "one weight per element of axis 1 of a tensor of shape", x, 1,
                dim::broadcast(x.dim(1), weight.dim(0)));
    slopes = reshape(weight, Shape(sizes));
  } else if (weight.rank() > 1 || (weight.rank() == 1 && !one)) {
    fail<ShapeError>("[prelu] expected a vector of weights, got shape {}",
                     weight.shape().to_string());
  } else if (weight.rank() == 1) {
    slopes = reshape(weight, Shape::scalar());
  }
  return where(greater(x, 0.0), x, x * slopes);
}

Tensor rrelu(const Tensor& x, double lower, double upper, bool training) {
  if (!(lower <= upper))
    fail<InvalidArgumentError>(
        "[rrelu] expected a lower limit of at most the upper one, got {} and "
        "{}",
        lower, upper);
  if (!training) return nn::leaky_relu(x, (lower + upper) / 2);
  return where(greater(x, 0.0), x,
               x * random::uniform(x.shape(), lower, upper, {.dtype = x.dtype()}));
}

}  // namespace functional
}  // namespace tandem::nn
