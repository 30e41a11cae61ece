// Training runs whose losses and weights must be equal to the bit, whatever the number of replicas,
// threads and processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/tensors.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::testing {

inline constexpr int kInvariantSteps = 30;
inline constexpr std::int64_t kInvariantBatch = 16;

enum class InvariantModel { kLeNet, kResNet20, kTransformer };
inline constexpr InvariantModel kInvariantModels[] = {
    InvariantModel::kLeNet, InvariantModel::kResNet20, InvariantModel::kTransformer};

inline std::string name_of(InvariantModel model) {
  switch (model) {
    case InvariantModel::kLeNet: return "LeNet";
    case InvariantModel::kResNet20: return "ResNet-20";
    case InvariantModel::kTransformer: return "transformer";
  }
  return {};
}

inline Model invariant_lenet() {
  return Sequential({layers::Conv2D(6, 5, {.activation = "relu", .input_shape = {12, 12, 1}}),
                     layers::MaxPooling2D(2), layers::Flatten(),
                     layers::Dense(24, {.activation = "relu"}), layers::Dense(10)});
}

// Three stages of three blocks with two convolutions each, with dropout before the classifier.
inline Model invariant_resnet20() {
  const auto normalised = [](const SymbolicInput& x, std::int64_t filters, std::int64_t kernel,
                             std::int64_t stride) {
    return layers::BatchNormalization()(layers::Conv2D(
        filters, kernel, {.strides = stride, .padding = "same", .use_bias = false})(x));
  };
  const SymbolicInput input = Input({8, 8, 3});
  SymbolicInput x = layers::ReLU()(normalised(input, 4, 3, 1));
  for (const std::int64_t filters : {4, 8, 16})
    for (int block = 0; block < 3; ++block) {
      const bool narrows = block == 0 && filters > 4;
      const std::int64_t stride = narrows ? 2 : 1;
      SymbolicInput y = layers::ReLU()(normalised(x, filters, 3, stride));
      y = normalised(y, filters, 3, 1);
      const SymbolicInput shortcut = narrows ? normalised(x, filters, 1, stride) : x;
      x = layers::ReLU()(layers::Add()(std::vector<SymbolicInput>{y, shortcut}));
    }
  x = layers::Dropout(0.3)(layers::GlobalAveragePooling2D()(x));
  return Functional(input, layers::Dense(10)(x));
}

inline Model invariant_transformer() {
  const SymbolicInput input = Input({6});
  SymbolicInput x = layers::Embedding(20, 16)(input);
  x = layers::Add()(std::vector<SymbolicInput>{x, layers::PositionEmbedding(6)(x)});
  for (int block = 0; block < 2; ++block) {
    const auto add = [&](const SymbolicInput& y) {
      return layers::Add()(std::vector<SymbolicInput>{x, y});
    };
    x = add(layers::MultiHeadAttention(
        2, 8, {.dropout = 0.1, .use_causal_mask = true})(layers::LayerNormalization()(x)));
    x = add(layers::Dropout(0.1)(layers::Dense(16)(
        layers::Dense(32, {.activation = "gelu"})(layers::LayerNormalization()(x)))));
  }
  return Functional(input, layers::Dense(10)(layers::Flatten()(x)));
}

inline Model make_invariant(InvariantModel model) {
  random::set_seed(7);
  switch (model) {
    case InvariantModel::kLeNet: return invariant_lenet();
    case InvariantModel::kResNet20: return invariant_resnet20();
    case InvariantModel::kTransformer: return invariant_transformer();
  }
  return {};
}

// The examples of all steps.
inline data::Example invariant_data(InvariantModel model, std::int64_t examples) {
  std::vector<std::int32_t> labels, words;
  for (std::int64_t i = 0; i < examples; ++i)
    labels.push_back(static_cast<std::int32_t>(i * 7 % 10));
  for (std::int64_t i = 0; i < examples * 6; ++i)
    words.push_back(static_cast<std::int32_t>((i * 13 + i / 5) % 20));
  switch (model) {
    case InvariantModel::kLeNet:
      return {random_tensor({examples, 12, 12, 1}, 3, -1.0, 1.0, float32), constant(labels)};
    case InvariantModel::kResNet20:
      return {random_tensor({examples, 8, 8, 3}, 3, -1.0, 1.0, float32), constant(labels)};
    case InvariantModel::kTransformer:
      return {reshape(constant(words), {examples, 6}), constant(labels)};
  }
  return {};
}

// The losses of the steps, then the weights, to the bit.
inline std::string invariant_text(std::vector<double> losses, const Model& model) {
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) losses.push_back(value);
  return text_of(losses);
}

// Bits are equal only between devices of one kind, so this uses CPUs even if there are GPUs.
inline void use_cpus(int count, int threads) {
  config::set_visible_devices({}, "GPU");
  config::set_logical_cpus(count);
  config::set_intra_op_parallelism_threads(threads * count);
}

struct InvariantRun {
  InvariantModel model = InvariantModel::kLeNet;
  int parts = 8;
  int threads = 1;
  bool run_eagerly = false;
  std::int64_t last_batch = kInvariantBatch;  // number of examples in the last step
};

// Runs fit() under a strategy, with one step per epoch.
inline std::string fit_invariant(const distribute::Strategy& strategy, const InvariantRun& run) {
  config::set_replica_invariant_parts(run.parts);
  const std::int64_t examples = (kInvariantSteps - 1) * kInvariantBatch + run.last_batch;
  const auto scope = strategy.scope();
  Model model = make_invariant(run.model);
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .run_eagerly = run.run_eagerly});
  const data::Example data = invariant_data(run.model, examples);
  std::vector<double> metrics;
  random::set_seed(11);
  const auto batches = data::Dataset::from_tensor_slices(data).batch(kInvariantBatch);
  // One epoch per step, so that each step's loss is reported.
  for (int step = 0; step < kInvariantSteps; ++step) {
    const History history = model.fit(batches.skip(step).take(1), {.verbose = 0});
    for (const auto& [name, values] : history.history)
      metrics.insert(metrics.end(), values.begin(), values.end());
  }
  for (const auto& [name, value] : model.evaluate(batches)) metrics.push_back(value);
  return invariant_text(metrics, model);
}

}  // namespace tandem::testing
