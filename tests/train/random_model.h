// Random models for images and their training by fit(), chosen by a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "function/random_steps.h"
#include "tandem/tandem.h"

namespace tandem::testing {

struct RandomModel {
  std::uint32_t seed = 0;
  std::string policy = "float32";
  bool per_example = false;  // no layer mixes examples or has random numbers

  // Compiles the model. Call it in the strategy's scope.
  Model make(bool run_eagerly) const {
    mixed_precision::set_global_policy(policy);
    random::set_seed(seed);
    Choices choices(seed);
    const SymbolicInput input = Input({6, 6, 4});
    SymbolicInput x = values(choices, input, 2 + choices.pick(5), &RandomModel::image_layer);
    if (choices.pick(2) == 0) x = layers::MaxPooling2D()(x);
    x = choices.pick(2) == 0 ? layers::GlobalAveragePooling2D()(x) : layers::Flatten()(x);
    x = values(choices, layers::Dense(8)(x), 1 + choices.pick(4), &RandomModel::vector_layer);
    Functional model(input, layers::Dense(3)(x));
    model.compile({.optimizer = optimizer(choices),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"},
                   .run_eagerly = run_eagerly});
    mixed_precision::set_global_policy("float32");
    return model;
  }

  // Trains the model, also with a last batch that is smaller. Returns its variables, predictions,
  // and the losses and metrics.
  Tensors train(Model& model) const {
    random::set_seed(seed + 1);
    const DeviceScope on("/cpu:0");
    const Tensor x = random::normal({20, 6, 6, 4}), y = random::uniform_int({20}, 0, 3);
    const auto batches = data::Dataset::from_tensor_slices({x, y}).batch(8);
    const History history = model.fit(batches, {.epochs = 2, .verbose = 0});
    Tensors results;
    for (const auto& [name, values] : history.history) results.push_back(constant(values));
    results.push_back(model.predict(x, {.batch_size = 8}));
    for (const Variable& variable : model.variables()) results.push_back(variable.value());
    return results;
  }

 private:
  using Step = SymbolicInput (RandomModel::*)(Choices&, const SymbolicInput&) const;

  // Applies layers that keep the shape to random values, and sums or joins of them. The last one
  // adds all values without a use.
  SymbolicInput values(Choices& choices, const SymbolicInput& first, int count, Step step) const {
    std::vector<SymbolicInput> values = {(this->*step)(choices, first)};
    for (int i = 0; i < count; ++i) {
      const SymbolicInput x = choices.of(values);
      switch (choices.pick(5)) {
        case 0: values.push_back(layers::Add()(several(choices, values, 2))); break;
        case 1: values.push_back(layers::Add()(several(choices, values, 3))); break;
        case 2: values.push_back(layers::Multiply()({x, (this->*step)(choices, x)})); break;
        default: values.push_back((this->*step)(choices, x));
      }
    }
    return layers::Add()(values.size() > 1 ? values : std::vector{values[0], values[0]});
  }

  std::vector<SymbolicInput> several(Choices& choices, const std::vector<SymbolicInput>& values,
                                     int count) const {
    std::vector<SymbolicInput> chosen;
    for (count += choices.pick(2); count > 0; --count)
      chosen.push_back(choices.pick(3) == 0 ? normalised(choices.of(values)) : choices.of(values));
    return chosen;
  }

  SymbolicInput normalised(const SymbolicInput& x) const {
    return per_example ? layers::LayerNormalization()(x) : layers::BatchNormalization()(x);
  }

  SymbolicInput image_layer(Choices& choices, const SymbolicInput& x) const {
    const auto same = [&](nn::Pair size) {
      const char* activations[] = {"linear", "relu", "gelu"};
      return layers::Conv2D(4, size,
                            {.padding = "same",
                             .activation = activations[choices.pick(3)],
                             .use_bias = choices.pick(2) == 0});
    };
    switch (choices.pick(6)) {
      case 0: return same(1)(x);
      case 1: return layers::DepthwiseConv2D(3, {.padding = "same"})(x);
      case 2: return layers::ReLU()(normalised(same(3)(x)));
      case 3: {  // twice the same weights
        const Layer shared = same(3);
        return layers::Add()({shared(x), shared(normalised(x)), x});
      }
      case 4: return normalised(x);
      default: return same({3, 1})(layers::Concatenate()({x, normalised(x)}));
    }
  }

  SymbolicInput vector_layer(Choices& choices, const SymbolicInput& x) const {
    const char* activations[] = {"linear", "relu", "gelu", "tanh", "swish", "elu", "softplus"};
    const auto dense = [&] {
      return layers::Dense(
          8, {.activation = activations[choices.pick(7)], .use_bias = choices.pick(3) > 0});
    };
    switch (choices.pick(6)) {
      case 0: return dense()(x);
      case 1: return layers::LayerNormalization()(dense()(x));
      case 2: return per_example ? dense()(x) : layers::Dropout(0.25)(dense()(x));
      case 3: {
        const Layer shared = dense();
        return layers::Add()({shared(x), x, shared(shared(x))});
      }
      case 4: return normalised(dense()(x));
      default: return dense()(layers::Concatenate()({x, layers::Activation("sigmoid")(x)}));
    }
  }

  static optimizers::Optimizer optimizer(Choices& choices) {
    switch (choices.pick(9)) {
      case 0: return optimizers::SGD({.learning_rate = 0.05});
      case 1: return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9});
      case 2: return optimizers::SGD({.learning_rate = 0.02, .momentum = 0.9, .nesterov = true});
      case 3: return optimizers::RMSprop({.learning_rate = 0.01});
      case 4:
        return optimizers::RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true});
      case 5: return optimizers::Adagrad({.learning_rate = 0.05});
      case 6: return optimizers::AdamW({.learning_rate = 0.01});
      case 7: return optimizers::LAMB({.learning_rate = 0.01});
      default: return optimizers::Adam({.learning_rate = 0.01});
    }
  }
};

}  // namespace tandem::testing
