// Reductions and norms that are composed of other operations.
#include "core/status.h"
#include "ops/math/reduce.h"
#include "runtime/autocast.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {

namespace {

Tensor widened(const Tensor& x) { return cast(x, wide_dtype(x.dtype())); }

Tensor wide_norm(const Tensor& x) { return run(kEuclideanNorm, {&x}, ReduceAttrs::of({})); }

Tensor wide_variance(const Tensor& x, const ReduceOptions& options) {
  const Tensor* input = &x;
  return run_op(kVariance, {&input, 1}, ReduceAttrs::of(options))[0];
}

}  // namespace

Tensor reduce_variance(const Tensor& x, const ReduceOptions& options) {
  return named(cast(wide_variance(x, options), x.dtype()), options.name);
}

Tensor reduce_std(const Tensor& x, const ReduceOptions& options) {
  const Tensor variance = wide_variance(x, options);
  // The derivative of the square root at 0 is infinite; it is treated as 0.
  const Tensor is_zero = equal(variance, 0.0);
  const Tensor root = where(is_zero, variance, sqrt(where(is_zero, ones_like(variance), variance)));
  return named(cast(root, x.dtype()), options.name);
}

Tensor reduce_logsumexp(const Tensor& values, const ReduceOptions& options) {
  const Tensor x = autocast_float32_on_gpus(values);
  const Tensor largest = stop_gradient(reduce_max(x, {.axis = options.axis, .keepdims = true}));
  // inf - inf would be NaN.
  const Tensor shift = where(is_finite(largest), largest, zeros_like(largest));
  const Tensor sum =
      reduce_sum(widened(exp(x - shift)), {.axis = options.axis, .keepdims = options.keepdims});
  const Tensor result = cast(log(sum), x.dtype());
  return named(result + reshape(shift, result.shape()), options.name);
}

Tensor global_norm(TensorList tensors) {
  DType dtype = float32;
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && tensor.dtype() == float64) dtype = float64;
  std::vector<Tensor> norms;
  norms.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    if (tensor.defined()) norms.push_back(cast(wide_norm(tensor), dtype));
  if (norms.empty())
    fail<InvalidArgumentError>("[global_norm] expected at least one defined tensor, got none");
  return norms.size() == 1 ? norms[0] : norm(stack(norms));
}

namespace {

Tensor clip_factor(const Tensor& norm, double clip_norm) {
  return clip_norm / maximum(norm, clip_norm);
}

// x * factor, rounded to x's dtype once.
Tensor scaled_by(const Tensor& x, const Tensor& factor) {
  return scaled(x, cast(factor, wide_dtype(x.dtype())));
}

}  // namespace

Tensor clip_by_norm(const Tensor& x, double clip_norm) {
  if (!(clip_norm > 0.0))
    fail<InvalidArgumentError>("[clip_by_norm] expected a clip_norm above 0, got {}", clip_norm);
  return scaled_by(x, clip_factor(wide_norm(x), clip_norm));
}

ClippedTensors clip_by_global_norm(TensorList tensors, double clip_norm) {
  if (!(clip_norm > 0.0))
    fail<InvalidArgumentError>("[clip_by_global_norm] expected a clip_norm above 0, got {}",
                               clip_norm);
  ClippedTensors result;
  result.norm = global_norm(tensors);
  // NaN for an infinite norm, or it would make zeros of the finite gradients.
  const Tensor factor = clip_factor(result.norm, clip_norm) + (result.norm - result.norm);
  result.tensors.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    result.tensors.push_back(tensor.defined() ? scaled_by(tensor, factor) : Tensor());
  return result;
}

nn::Moments nn::moments(const Tensor& x, const Axes& axes, bool keepdims) {
  const ReduceOptions options{.axis = axes, .keepdims = keepdims};
  return {reduce_mean(x, options), reduce_variance(x, options)};
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = cast(a, float64), y = cast(b.to(a.device()), float64);
  const Tensor close = less_equal(abs(x - y), add(multiply(abs(y), rtol), atol));
  return reduce_all(logical_or(equal(x, y), logical_and(close, is_finite(y)))).item<bool>();
}

}  // namespace tandem
