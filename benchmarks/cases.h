// The models that are measured, and their step: forward, backward and SGD with momentum, on random
// data in memory.
#pragma once

#include <tandem/tandem.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

namespace td = tandem;
using td::data::Example;

struct Case {
  td::Shape example;
  std::int64_t batch;
  td::Model (*make)();
  std::int64_t classes = 10;
};

inline td::Model mlp() {
  return td::Sequential({td::layers::Dense(512, {.activation = "relu", .input_shape = {784}}),
                         td::layers::Dense(512, {.activation = "relu"}), td::layers::Dense(10)});
}

inline td::Model lenet() {
  return td::Sequential(
      {td::layers::Conv2D(32, {3, 3}, {.activation = "relu", .input_shape = {28, 28, 1}}),
       td::layers::Conv2D(64, {3, 3}, {.activation = "relu"}), td::layers::MaxPooling2D({2, 2}),
       td::layers::Flatten(), td::layers::Dense(128, {.activation = "relu"}),
       td::layers::Dense(10)});
}

inline td::SymbolicInput convolve(const td::SymbolicInput& x, std::int64_t filters,
                                  std::int64_t kernel, std::int64_t stride) {
  const td::Layer conv = td::layers::Conv2D(
      filters, kernel, {.strides = stride, .padding = "same", .use_bias = false});
  return td::layers::BatchNormalization()(conv(x));
}

inline td::Model resnet20() {
  const td::SymbolicInput input = td::Input({32, 32, 3});
  td::SymbolicInput x = td::layers::ReLU()(convolve(input, 16, 3, 1));
  for (const std::int64_t filters : {16, 32, 64})
    for (int block = 0; block < 3; ++block) {
      const std::int64_t stride = block == 0 && filters != 16 ? 2 : 1;
      td::SymbolicInput y = td::layers::ReLU()(convolve(x, filters, 3, stride));
      y = convolve(y, filters, 3, 1);
      if (stride != 1) x = convolve(x, filters, 1, stride);
      x = td::layers::ReLU()(td::layers::Add()(std::vector<td::SymbolicInput>{y, x}));
    }
  return td::Functional(input, td::layers::Dense(10)(td::layers::GlobalAveragePooling2D()(x)));
}

// Bottlenecks of 64, 128, 256 and 512 filters, the stride in the 3x3 convolution.
inline td::Model resnet50() {
  const td::SymbolicInput input = td::Input({224, 224, 3});
  td::SymbolicInput x = td::layers::ReLU()(convolve(input, 64, 7, 2));
  x = td::layers::MaxPooling2D({2, 2})(x);
  const std::vector<std::pair<std::int64_t, int>> stages = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [filters, blocks] : stages)
    for (int block = 0; block < blocks; ++block) {
      const std::int64_t stride = block == 0 && filters != 64 ? 2 : 1;
      td::SymbolicInput y = td::layers::ReLU()(convolve(x, filters, 1, 1));
      y = td::layers::ReLU()(convolve(y, filters, 3, stride));
      y = convolve(y, 4 * filters, 1, 1);
      if (block == 0) x = convolve(x, 4 * filters, 1, stride);
      x = td::layers::ReLU()(td::layers::Add()(std::vector<td::SymbolicInput>{y, x}));
    }
  return td::Functional(input, td::layers::Dense(1000)(td::layers::GlobalAveragePooling2D()(x)));
}

inline Case find_case(const std::string& name) {
  if (name == "mlp64") return {{784}, 64, mlp};
  if (name == "mlp512") return {{784}, 512, mlp};
  if (name == "lenet64") return {{28, 28, 1}, 64, lenet};
  if (name == "resnet20") return {{32, 32, 3}, 128, resnet20};
  if (name == "resnet50") return {{224, 224, 3}, 8, resnet50, 1000};
  throw std::invalid_argument("no case " + name);
}

inline std::vector<Example> make_pool(const Case& what, std::int64_t batch) {
  std::vector<Example> pool;
  for (int i = 0; i < 4; ++i)
    pool.push_back({td::random::normal(what.example.with_leading(batch)),
                    td::random::uniform_int({batch}, 0, what.classes, {.dtype = td::int64})});
  return pool;
}

// The same in one part a replica.
inline std::vector<td::distribute::PerReplica<Example>> make_pool(
    const Case& what, std::int64_t global_batch, const td::distribute::Strategy& strategy) {
  std::vector<td::distribute::PerReplica<Example>> pool;
  for (const Example& batch : make_pool(what, global_batch)) {
    const auto dataset = td::data::Dataset::from_tensor_slices(batch).batch(global_batch);
    for (const auto& inputs : strategy.experimental_distribute_dataset(dataset))
      pool.push_back(inputs);
  }
  return pool;
}

// Forward and backward for one replica's share of the batch, and the update.
inline td::Tensor train_step(const td::Model& model, td::optimizers::Optimizer& optimizer,
                             const std::vector<td::Variable>& variables, const Example& batch,
                             std::int64_t global_batch) {
  const td::Tensor logits = model(batch[0], {.training = true});
  const td::Tensor losses = td::nn::sparse_softmax_cross_entropy(batch[1], logits);
  const td::Tensor loss = td::nn::compute_average_loss(losses, {.global_batch_size = global_batch});
  optimizer.minimize(loss, variables);
  return loss;
}

}  // namespace bench
