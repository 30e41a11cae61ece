// The use of GPUs by fit().
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cuda/fake_cuda.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

constexpr int kEpochs = 5, kSteps = 20, kBatch = 8;

Sequential make_model() {
  Sequential model({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                    layers::BatchNormalization(), layers::Dropout(0.5), layers::Dense(3)});
  model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}

data::Dataset examples() {
  const DeviceScope host("/cpu:0");
  std::vector<std::int32_t> labels;
  for (int i = 0; i < kSteps * kBatch; ++i) labels.push_back(i % 3);
  return data::Dataset::from_tensor_slices({random::normal({kSteps * kBatch, 6}), constant(labels)})
      .shuffle(kSteps * kBatch, {.seed = 3})
      .batch(kBatch)
      .prefetch(2);
}

// The number of recordings that each epoch launched.
std::vector<int> launched(Sequential& model) {
  const data::Dataset data = examples();
  std::vector<int> counts;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const int before = fake_cuda::graph_counts().launched;
    model.fit(data, {.validation_data = data, .verbose = 0});
    counts.push_back(fake_cuda::graph_counts().launched - before);
  }
  return counts;
}

// Batches have changing addresses in GPU memory, and evaluations run in between. fit() must keep
// its recordings nevertheless.
TEST(Fit, ReplaysEveryStepOfTrainingAndOfEvaluation) {
  random::set_seed(3);
  Sequential model = make_model();
  const std::vector<int> counts = launched(model);
  for (int epoch = 1; epoch < kEpochs; ++epoch)
    EXPECT_EQ(counts[static_cast<std::size_t>(epoch)], 2 * kSteps) << "epoch " << epoch;
}

TEST(Fit, ReplaysEveryStepOfReplicas) {
  const distribute::MirroredStrategy strategy(
      {.devices = {"/gpu:0", "/gpu:1"}, .cross_device_ops = distribute::NcclAllReduce()});
  random::set_seed(3);
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = make_model();
  }
  const std::vector<int> counts = launched(model);
  for (int epoch = 1; epoch < kEpochs; ++epoch)
    EXPECT_EQ(counts[static_cast<std::size_t>(epoch)], 2 * 2 * kSteps) << "epoch " << epoch;
}

}  // namespace
}  // namespace tandem
