// The models of the benchmarks and their training step: forward, backward and SGD with momentum on
// data in memory. peers/torch_step.py has the same models.
#pragma once

#include <tandem/tandem.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "random_numbers.h"

namespace bench {

namespace td = tandem;

using td::data::Example;

struct ModelCase {
  td::Shape example;
  std::int64_t batch;
  std::function<td::Model()> make;
  std::int64_t classes = 10;
  std::int64_t vocabulary = 0;  // examples are tokens, each is classified; 0: examples are floats
};

inline td::Model sequential_model(const td::Shape& example, const std::vector<td::Layer>& layers) {
  const td::SymbolicInput input = td::Input(example);
  td::SymbolicInput x = input;
  for (const td::Layer& layer : layers) x = layer(x);
  return td::Functional(input, x);
}

inline td::Layer dense(std::int64_t units, const std::string& activation = "") {
  return td::layers::Dense(units, {.activation = activation});
}

inline td::Model mlp(std::int64_t width) {
  return sequential_model({784}, {dense(width, "relu"), dense(width, "relu"), dense(10)});
}

inline td::Model lenet() {
  return sequential_model({28, 28, 1}, {td::layers::Conv2D(32, 3, {.activation = "relu"}),
                                        td::layers::Conv2D(64, 3, {.activation = "relu"}),
                                        td::layers::MaxPooling2D({2, 2}), td::layers::Flatten(),
                                        dense(128, "relu"), dense(10)});
}

inline td::SymbolicInput convolve(const td::SymbolicInput& x, std::int64_t filters,
                                  std::int64_t kernel, std::int64_t stride) {
  const td::Layer conv = td::layers::Conv2D(
      filters, kernel, {.strides = stride, .padding = "same", .use_bias = false});
  return td::layers::BatchNormalization({.epsilon = 1e-5})(conv(x));
}

inline td::SymbolicInput add(const td::SymbolicInput& a, const td::SymbolicInput& b) {
  return td::layers::Add()(std::vector<td::SymbolicInput>{a, b});
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
      x = td::layers::ReLU()(add(y, x));
    }
  return td::Functional(input, dense(10)(td::layers::GlobalAveragePooling2D()(x)));
}

// Bottlenecks of 64, 128, 256 and 512 filters, the stride in the 3x3 convolution.
inline td::Model resnet50(std::int64_t size) {
  const td::SymbolicInput input = td::Input({size, size, 3});
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
      x = td::layers::ReLU()(add(y, x));
    }
  return td::Functional(input, dense(1000)(td::layers::GlobalAveragePooling2D()(x)));
}

struct TransformerSizes {
  int blocks;
  std::int64_t width, heads, length, vocabulary;
};

// A decoder as in GPT-2: pre-normalisation, GELU, learned positions, an untied output layer.
inline td::Model transformer(const TransformerSizes& sizes) {
  const auto normalise = [](const td::SymbolicInput& x) {
    return td::layers::LayerNormalization({.epsilon = 1e-5})(x);
  };
  const td::SymbolicInput input = td::Input({sizes.length});
  td::SymbolicInput x = td::layers::Embedding(sizes.vocabulary, sizes.width)(input);
  x = add(x, td::layers::PositionEmbedding(sizes.length)(x));
  for (int block = 0; block < sizes.blocks; ++block) {
    const td::Layer attention = td::layers::MultiHeadAttention(
        sizes.heads, sizes.width / sizes.heads, {.use_causal_mask = true});
    x = add(x, attention(normalise(x)));
    x = add(x, dense(sizes.width)(dense(4 * sizes.width, "gelu")(normalise(x))));
  }
  const td::Layer head = td::layers::Dense(sizes.vocabulary, {.use_bias = false});
  return td::Functional(input, head(normalise(x)));
}

// A classifier of sequences. Its weights are the layers' own, unlike those of the other models.
inline td::Model recurrent(const td::Shape& example, const td::Layer& layer) {
  return sequential_model(example, {layer, dense(10)});
}

// `tiny`: a small version of the model, to test that it trains.
inline ModelCase find_case(const std::string& name, bool tiny = false) {
  const auto decoder = [&](TransformerSizes sizes) -> ModelCase {
    if (tiny) sizes = {2, 32, 2, 16, 61};
    return {{sizes.length},
            tiny ? 4 : 16,
            [=] { return transformer(sizes); },
            sizes.vocabulary,
            sizes.vocabulary};
  };
  if (name == "mlp64" || name == "mlp512") {
    const std::int64_t width = tiny ? 32 : 512;
    return {{784}, name == "mlp64" ? 64 : 512, [=] { return mlp(width); }};
  }
  if (name == "lenet64") return {{28, 28, 1}, tiny ? 8 : 64, [] { return lenet(); }};
  if (name == "resnet20") return {{32, 32, 3}, tiny ? 2 : 128, [] { return resnet20(); }};
  if (name == "resnet50") {
    const std::int64_t size = tiny ? 64 : 224;
    return {{size, size, 3}, tiny ? 4 : 8, [=] { return resnet50(size); }, 1000};
  }
  if (name == "lstm32" || name == "gru32") {
    const std::int64_t steps = tiny ? 4 : 128, width = tiny ? 16 : 256;
    const bool gru = name == "gru32";
    const td::Shape example{steps, width};
    return {example, tiny ? 4 : 32, [=] {
              return recurrent(example, gru ? td::Layer(td::layers::GRU(width))
                                            : td::Layer(td::layers::LSTM(width)));
            }};
  }
  if (name == "transformer4") return decoder({4, 256, 4, 128, 1000});
  if (name == "transformer12") return decoder({12, 768, 12, 512, 50304});
  throw std::invalid_argument("no case " + name);
}

inline td::Model make_model(const ModelCase& what) {
  td::Model model = what.make();
  model.build(what.example.with_leading(-1));
  set_random_weights(model.trainable_variables());
  return model;
}

// Four batches. Each uses two streams, which the weights do not use.
inline std::vector<Example> make_pool(const ModelCase& what, std::int64_t batch) {
  std::vector<Example> pool;
  const td::Shape shape = what.example.with_leading(batch);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t stream = 100'000 + 2 * i;
    pool.push_back(
        {what.vocabulary > 0 ? random_classes(stream, shape, what.vocabulary)
                             : random_uniform(stream, shape, std::sqrt(12.0)),
         random_classes(stream + 1, what.vocabulary > 0 ? shape : td::Shape{batch}, what.classes)});
  }
  return pool;
}

// The same, split into one part per replica.
inline std::vector<td::distribute::PerReplica<Example>> make_pool(
    const ModelCase& what, std::int64_t global_batch, const td::distribute::Strategy& strategy) {
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
  const td::Tensor losses =
      td::nn::sparse_softmax_cross_entropy(batch[1], td::cast(logits, td::float32));
  const std::int64_t labels = batch[1].size() / batch[1].dim(0);  // of an example
  const td::Tensor loss = td::nn::compute_average_loss(
      td::reshape(losses, {-1}), {.global_batch_size = global_batch * labels});
  optimizer.minimize(loss, variables);
  return loss;
}

}  // namespace bench
