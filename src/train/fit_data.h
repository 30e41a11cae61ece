// Converts the arguments of fit() into datasets.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tandem/model.h"

namespace tandem {

// The batch size for plain tensors if none is given, as in Keras.
inline constexpr std::int64_t kDefaultBatchSize = 32;
// Throws InvalidArgumentError for a batch size below 1.
data::Dataset in_batches(const data::Dataset& data, std::int64_t batch_size, const char* what);

// Throws InvalidArgumentError for an infinite dataset unless `limited`. `option` is the argument
// that would limit it.
void require_end(const data::Dataset& data, bool limited, const char* what, const char* option);

// Throws InvalidArgumentError for a negative class and for a weight that is negative, infinite or
// NaN.
void check_class_weights(const std::map<std::int64_t, double>& weights);

// Adds the class weight of each target as sample weights. Throws InvalidArgumentError if the
// example already has weights, or if its targets are not classes.
data::Example with_class_weights(const data::Example& example, std::size_t num_inputs,
                                 const std::map<std::int64_t, double>& weights);

// The validation data in batches. Plain tensors are batched by `options.validation_batch_size`,
// else by `batch_size`. Undefined if there is none. Throws InvalidArgumentError for options that
// contradict each other.
data::Dataset validation_batches(const FitOptions& options, std::int64_t batch_size);

// The examples of these tensors; targets and weights may be undefined.
data::Dataset examples_of(TensorList inputs, TensorList targets, const Tensor& sample_weight);

// Moves the last fraction `options.validation_split` of the examples from the inputs, the targets
// and `options.sample_weight` to the validation data. Throws InvalidArgumentError if it leaves no
// examples for training or for validation.
void split_validation(std::vector<Tensor>& inputs, std::vector<Tensor>& targets,
                      FitOptions& options);

}  // namespace tandem
