// Bringing targets, predictions and sample weights together, for losses and metrics.
#pragma once

#include <string_view>

#include "tandem/tensor.h"

namespace tandem {

// `y_true` in the shape and dtype of `y_pred`: an axis of size 1 at the end is added or taken away
// where one of them lacks it. Throws InvalidArgumentError "[what] expected ..., got ...".
Tensor like_predictions(std::string_view what, const Tensor& y_true, const Tensor& y_pred);

// Class numbers for scores of shape [..., classes]: `y_true` of shape [...] or [..., 1] as integers
// of shape [...]. Throws InvalidArgumentError.
Tensor class_labels(std::string_view what, const Tensor& y_true, const Tensor& y_pred);

// The mean over the last axis, where there is one besides the batch's.
Tensor mean_of_example(const Tensor& values);

// One weight an example, [batch] or [batch, 1], in the dtype of `values` and in a shape that
// broadcasts along them: [batch, 1, ...]. Weights of the values' own shape stay. Throws
// InvalidArgumentError.
Tensor weights_for(std::string_view what, const Tensor& sample_weight, const Tensor& values);

}  // namespace tandem
