// Turns the data and the options of fit() into datasets.
#pragma once

#include <cstdint>
#include <map>

#include "tandem/model.h"

namespace tandem {

// For plain tensors: the batch that Keras takes when none is given.
inline constexpr std::int64_t kDefaultBatchSize = 32;
// Throws InvalidArgumentError for a batch size below 1.
data::Dataset in_batches(const data::Dataset& data, std::int64_t batch_size, const char* what);

// Throws InvalidArgumentError for data that never ends where nothing limits its use; `option` is
// the one that would limit it.
void require_end(const data::Dataset& data, bool limited, const char* what, const char* option);

// Inputs, targets and the weight of each target's class. Throws InvalidArgumentError where the
// example has weights already, or targets that are no classes.
data::Example with_class_weights(const data::Example& example, std::size_t num_inputs,
                                 const std::map<std::int64_t, double>& weights);

// The validation data in batches, of plain tensors in those of `options.validation_batch_size`, or
// else of `batch_size`. Undefined where there is none. Throws InvalidArgumentError for options that
// do not go together.
data::Dataset validation_batches(const FitOptions& options, std::int64_t batch_size);

// Takes the last `options.validation_split` of the examples out of `x` and `y`, as validation data.
// Throws InvalidArgumentError for a fraction that leaves no examples on one side.
void split_validation(Tensor& x, Tensor& y, FitOptions& options);

}  // namespace tandem
