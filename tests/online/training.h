// A model and samples for tests of training beside a program.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::testing {

inline Model small_model(std::uint64_t seed = 1, const optimizers::Optimizer& optimizer =
                                                     optimizers::Adam({.learning_rate = 0.01})) {
  random::set_seed(seed);
  Sequential model(
      {layers::Dense(6, {.activation = "tanh", .input_shape = {2}}), layers::Dense(1)});
  model.compile({.optimizer = optimizer, .loss = losses::MeanSquaredError()});
  return model;
}

struct Pair {
  Tensor x, y;
};
// Samples first to first + count - 1 of a fixed sequence.
inline Pair samples(std::int64_t first, std::int64_t count) {
  std::vector<double> x, y;
  for (std::int64_t i = first; i < first + count; ++i) {
    const double a = std::sin(1.0 + 0.7 * static_cast<double>(i)),
                 b = std::cos(2.9 * static_cast<double>(i));
    x.insert(x.end(), {a, 50.0 + b});
    y.push_back(3.0 + a * b);
  }
  return {reshape(constant(x, {.dtype = float32}), {count, 2}),
          reshape(constant(y, {.dtype = float32}), {count, 1})};
}

inline std::vector<double> weights_of(const Model& model) {
  std::vector<double> all;
  for (const Variable& variable : model.variables()) {
    const auto values = values_of(variable.value());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace tandem::testing
