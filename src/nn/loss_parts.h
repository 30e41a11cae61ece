// Parts of several losses.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/losses.h"
#include "tandem/tensor.h"

namespace tandem::losses {

inline constexpr double kEpsilon = 1e-7;  // as in Keras: probabilities are in [eps, 1 - eps]

std::string name_or(const std::string& name, const char* otherwise);

// Probabilities in [eps, 1 - eps].
Tensor inside_unit(const Tensor& probabilities);

// Throw InvalidArgumentError "[what] expected ..., got ...".
void expect_classes(const char* what, const Tensor& y_pred);
void expect_smoothing(const char* what, double smoothing);

// Label smoothing: mixes the labels with a uniform distribution over `classes`, whose weight is
// `smoothing`.
Tensor smoothed(const Tensor& labels, double smoothing, std::int64_t classes);

// Converts labels to -1 and 1 if all of them are 0 or 1, as Keras does. A batch of only ones is the
// same either way.
Tensor signs_of(const Tensor& labels);

// Autocast computes losses in float32.
Tensor for_loss(const Tensor& predictions);

}  // namespace tandem::losses
