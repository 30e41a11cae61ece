#include "nn/targets.h"

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {
namespace {

Tensor as_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

// Adds or removes a last axis of size 1 if that gives `x` the rank `rank`.
Tensor with_rank(const Tensor& x, int rank) {
  if (x.rank() + 1 == rank) return expand_dims(x, -1);
  if (x.rank() == rank + 1 && may_agree(x.size_word(-1), 1)) return squeeze(x, {-1});
  return x;
}

}  // namespace

Tensor at_least_float32(const Tensor& predictions) {
  const DType dtype = predictions.dtype();
  return dtype == float16 || dtype == bfloat16 ? cast(predictions, float32) : predictions;
}

Tensor like_predictions(std::string_view what, const Tensor& y_true, const Tensor& y_pred) {
  const Tensor aligned = with_rank(y_true, y_pred.rank());
  if (!may_agree(aligned.shape(), y_pred.shape()))
    fail<InvalidArgumentError>("[{}] expected y_true of y_pred's shape {}, got {}{}", what,
                               y_pred.shape().to_string(), y_true.shape().to_string(),
                               // Labels have fewer axes than predictions.
                               y_true.rank() > y_pred.rank()
                                   ? "; if y_true is the prediction: the order is (y_true, y_pred)"
                                   : "");
  return as_dtype(of_shape(what, "y_true of shape", aligned, y_pred.shape()), y_pred.dtype());
}

Tensor class_labels(std::string_view what, const Tensor& y_true, const Tensor& y_pred) {
  if (y_pred.rank() < 1)
    fail<InvalidArgumentError>("[{}] expected y_pred of shape (..., classes), got {}", what,
                               y_pred.shape().to_string());
  const Shape expected(
      y_pred.shape().words().span().first(static_cast<std::size_t>(y_pred.rank() - 1)));
  Tensor labels = with_rank(y_true, expected.rank());
  if (!may_agree(labels.shape(), expected))
    fail<InvalidArgumentError>(
        "[{}] expected class indices of shape {} for y_pred of shape {}, got {}", what,
        expected.to_string(), y_pred.shape().to_string(), y_true.shape().to_string());
  labels = of_shape(what, "class indices of shape", labels, expected);
  return labels.dtype() == int32 || labels.dtype() == int64 ? labels : cast(labels, int64);
}

Tensor mean_of_example(const Tensor& values) {
  return values.rank() < 2 ? values : reduce_mean(values, {.axis = Dims{-1}});
}

Tensor weights_for(std::string_view what, const Tensor& sample_weight, const Tensor& values) {
  Tensor weights = as_dtype(sample_weight, values.dtype());
  if (weights.shape() == values.shape()) return weights;
  const bool open = weights.rank() == 2 && dim::is_unknown(weights.size_word(1));
  constexpr const char* kWanted = "one sample weight per example, a shape of";
  if (open && values.rank() == 2)  // the run decides: one per example, or one per value
    return broadcast_to(of_size(what, kWanted, weights, 0, values.size_word(0)), values.shape());
  if (weights.rank() == 2 && (open || weights.size_word(1) == 1))
    weights = squeeze(weights, {1});
  else if (may_agree(weights.shape(), values.shape()))
    return of_shape(what, kWanted, weights, values.shape());
  if (weights.rank() != 1 || values.rank() < 1 ||
      !may_agree(weights.size_word(0), values.size_word(0)))
    fail<InvalidArgumentError>(
        "[{}] expected one sample weight per example for values of shape {}, got shape {}", what,
        values.shape().to_string(), sample_weight.shape().to_string());
  Shape shape = values.shape();
  for (int axis = 1; axis < shape.rank(); ++axis) shape.set(axis, 1);
  return reshape(weights, shape);
}

}  // namespace tandem
