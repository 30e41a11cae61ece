// Parts of PyTorch's losses.
#pragma once

#include "tandem/functional.h"

namespace tandem::nn::functional {

// The values of a loss by its reduction. Throws "[what] expected ..." for kBatchMean.
Tensor reduced(const char* what, const Tensor& values, LossReduction reduction);

// Predictions of 16 bits as float32. Throws InvalidArgumentError for integers.
Tensor predictions(const char* what, const Tensor& input, const Tensor& target);

// `target` in the dtype of `input`, whose shape it must have.
Tensor like_input(const char* what, const Tensor& input, const Tensor& target);

}  // namespace tandem::nn::functional
