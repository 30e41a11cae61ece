// A training that gives the same result on several workers as in one process.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/tensors.h"
#include "support/waiting.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::testing {

// Batches of 8, the last of 2: fewer than there may be replicas.
inline constexpr std::int64_t kExamples = 34, kSteps = 50;

inline data::Dataset batches() {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < kExamples; ++i) labels.push_back(i * 7 % 3);
  return data::Dataset::from_tensor_slices(
             {random_tensor({kExamples, 6}, 3, -1.0, 1.0, float32), constant(labels)})
      .shuffle(kExamples, {.seed = 2})
      .batch(8);
}

struct Config {
  bool run_eagerly = false;
  bool moments = false;
  DTypePolicy dtype = {};
  distribute::Communication communication = distribute::Communication::kAuto;
};

inline Sequential make_model(const distribute::Strategy& strategy, const Config& config = {}) {
  const auto scope = strategy.scope();
  std::vector<Layer> layers = {layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                               layers::Dropout(0.3)};
  if (config.moments) layers.push_back(layers::BatchNormalization());
  layers.push_back(layers::Dense(3));
  Sequential model(layers);
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy", "sparse_top_k_categorical_accuracy"},
                 .run_eagerly = config.run_eagerly,
                 .dtype = config.dtype});
  return model;
}

// The results of training, evaluation and prediction, and the weights.
inline std::vector<double> outcome(Model& model) {
  random::set_seed(4);
  std::vector<double> numbers;
  const History history =
      model.fit(batches(), {.epochs = kSteps / 5, .validation_data = batches(), .verbose = 0});
  for (const auto& [name, values] : history.history)
    numbers.insert(numbers.end(), values.begin(), values.end());
  for (const auto& [name, value] : model.evaluate(batches())) numbers.push_back(value);
  const auto append = [&](const Tensor& tensor) {
    const auto values = values_of(tensor);
    numbers.insert(numbers.end(), values.begin(), values.end());
  };
  append(model.predict(random_tensor({11, 6}, 9, -1.0, 1.0, float32), {.batch_size = 3}));
  for (const Variable& variable : model.variables()) append(variable.value());
  return numbers;
}

inline std::string train(const distribute::Strategy& strategy, const Config& config) {
  Sequential model = make_model(strategy, config);
  return text_of(outcome(model));
}

inline std::vector<std::string> train_in(int workers, const Config& config) {
  return run_workers(workers, [&](int index) {
    random::set_seed(
        static_cast<std::uint64_t>(index));  // all workers start from the chief's weights
    return train(distribute::MultiWorkerMirroredStrategy(
                     {.communication_options = {config.communication}, .timeout = kFarAway}),
                 config);
  });
}

inline std::vector<double> train_alone(const Config& config) {
  ChildProcess process([&] {
    random::set_seed(0);
    return train(distribute::DefaultStrategy(), config);
  });
  return numbers_of(process.result());
}

inline void expect_near(const std::string& text, const std::vector<double>& expected,
                        const std::string& what) {
  const std::vector<double> numbers = numbers_of(text);
  ASSERT_EQ(numbers.size(), expected.size()) << what << ": " << text.substr(0, 200);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_NEAR(numbers[i], expected[i], 1e-5 * std::fmax(1.0, std::abs(expected[i])))
        << what << ", number " << i;
}

}  // namespace tandem::testing
