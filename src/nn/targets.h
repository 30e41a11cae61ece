// Aligns targets and sample weights with predictions, for losses and metrics.
#pragma once

#include <string_view>

#include "tandem/tensor.h"

namespace tandem {

// Predictions of 16 bits as float32, others as they are: sums of 16-bit values are not accurate.
Tensor at_least_float32(const Tensor& predictions);

// `y_true` in the shape and dtype of `y_pred`. A last axis of size 1 is added or removed if that
// makes the ranks equal. Throws InvalidArgumentError "[what] expected ..., got ...".
Tensor like_predictions(std::string_view what, const Tensor& y_true, const Tensor& y_pred);

// Class indices for scores of shape [..., classes]: `y_true`, of shape [...] or [..., 1], as
// integers of shape [...]. Throws InvalidArgumentError.
Tensor class_labels(std::string_view what, const Tensor& y_true, const Tensor& y_pred);

// The mean over the last axis, unless the batch axis is the only one.
Tensor mean_of_example(const Tensor& values);

// Per-example weights [batch] or [batch, 1], in the dtype of `values` and in a shape that
// broadcasts to theirs: [batch, 1, ...]. Weights of the values' shape keep it. Throws
// InvalidArgumentError.
Tensor weights_for(std::string_view what, const Tensor& sample_weight, const Tensor& values);

}  // namespace tandem
