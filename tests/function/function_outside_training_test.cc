// Models whose forward pass is traced, with the loss, the gradient and the optimizer outside.
#include <gtest/gtest.h>

#include "support/gpus.h"
#include "support/tensors.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem::function_outside_training_test {
namespace {

using testing::elements_of;
using testing::expect_same;
using testing::Trained;

constexpr float kMore = 1e-6f;  // than expect_same() allows without it

enum class Mode { kTape, kMinimize, kBackward };

// 50 steps of a net with dropout and batch normalisation, on batches of two sizes.
Trained train(bool traced, Mode mode) {
  random::set_seed(3);
  Sequential model({layers::Dense(16, {.activation = "relu", .input_shape = {8}}),
                    layers::Dropout(0.25), layers::BatchNormalization(), layers::Dense(4)});
  optimizers::Optimizer optimizer =
      optimizers::Adam({.learning_rate = 0.01}, model.trainable_variables());
  const Tensor x = random::normal({12, 8});
  const Tensor y = random::uniform_int({12}, 0, 4);
  const auto forward = [&](const Tensor& inputs) { return model(inputs, {.training = true}); };
  const auto replayed = function(forward);
  Trained result;
  for (int i = 0; i < 50; ++i) {
    const std::int64_t size = i % 5 == 4 ? 7 : 12;
    const Tensor inputs = slice(x, {0, 0}, {size, -1}), labels = slice(y, {0}, {size});
    std::optional<GradientTape> tape;
    if (mode == Mode::kTape) tape.emplace();
    const Tensor logits = traced ? replayed(inputs) : forward(inputs);
    const Tensor loss = reduce_mean(nn::sparse_softmax_cross_entropy(labels, logits));
    switch (mode) {
      case Mode::kTape:
        optimizer.apply_gradients(tape->gradient(loss, model.trainable_variables()),
                                  model.trainable_variables());
        break;
      case Mode::kMinimize: optimizer.minimize(loss, model.trainable_variables()); break;
      case Mode::kBackward:
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
    }
    result.losses.push_back(loss.item<float>());
  }
  if (traced) {
    EXPECT_EQ(replayed.num_traces(), 2u);
  }
  result.weights = elements_of(model.variables());
  return result;
}

TEST(FunctionOutsideTraining, TapesEqualEager) {
  expect_same(train(true, Mode::kTape), train(false, Mode::kTape), kMore);
}
TEST(FunctionOutsideTraining, MinimizeEqualsEager) {
  expect_same(train(true, Mode::kMinimize), train(false, Mode::kMinimize), kMore);
}
TEST(FunctionOutsideTraining, BackwardEqualsEager) {
  expect_same(train(true, Mode::kBackward), train(false, Mode::kBackward), kMore);
}

TEST(FunctionOutsideTraining, AConvolutionalNetOfAnySize) {
  random::set_seed(3);
  const Sequential model({layers::Conv2D(4, 3, {.activation = "relu", .input_shape = {8, 8, 1}}),
                          layers::BatchNormalization(), layers::MaxPooling2D(2), layers::Flatten(),
                          layers::Dense(3)});
  const auto forward = [&](const Tensor& x) { return model(x, {.training = true}); };
  const auto f = function(forward, {.input_signature = {{.shape = {-1, 8, 8, 1}}}});
  for (std::int64_t size : {4, 7, 4}) {
    const Tensor x = random::normal({size, 8, 8, 1});
    const Tensor labels = random::uniform_int({size}, 0, 3);
    const auto gradients = [&](bool traced) {
      GradientTape tape;
      const Tensor loss =
          reduce_mean(nn::sparse_softmax_cross_entropy(labels, traced ? f(x) : forward(x)));
      return tape.gradient(loss, model.trainable_variables());
    };
    const auto actual = gradients(true), expected = gradients(false);
    for (std::size_t i = 0; i < expected.size(); ++i)
      testing::expect_tensor(actual[i], float32, expected[i].shape(),
                             testing::values_of(expected[i]), 1e-5);
  }
  EXPECT_EQ(f.num_traces(), 1u);
}

TEST(FunctionOutsideTraining, MemoryDoesNotGrow) {
  testing::use_gpus(1, 64);
  const DeviceScope gpu("/gpu:0");
  random::set_seed(3);
  const Sequential model({layers::Dense(64, {.activation = "tanh", .input_shape = {64}}),
                          layers::Dense(64, {.activation = "tanh"}), layers::Dense(1)});
  const auto forward = function([&](const Tensor& x) { return model(x); });
  const auto in_use = [] { return config::get_memory_info("/gpu:0").current; };
  const Tensor x = ones({256, 64});
  Variable first = model.trainable_variables().front();
  std::int64_t settled = 0, held = 0;
  for (int i = 0; i < 10; ++i) {
    Tensor loss = reduce_mean(square(forward(x)));
    loss.backward();
    for (Variable variable : model.trainable_variables()) variable.zero_grad();
    loss = {};
    if (i == 2) settled = in_use();
  }
  EXPECT_EQ(in_use(), settled);
  // Many calls precede their backward passes. This may allocate new memory for results, but only
  // once.
  std::int64_t after = 0;
  for (int again = 0; again < 3; ++again) {
    std::vector<Tensor> waiting;
    for (int i = 0; i < 8; ++i) waiting.push_back(forward(x));
    held = in_use();
    EXPECT_GT(held, settled + 8 * 256 * 64 * 4);
    waiting.clear();
    static_cast<void>(forward(x));
    if (again == 0) after = in_use();
    EXPECT_LE(in_use(), settled + 5 * 256 * 64 * 4);
    EXPECT_LE(in_use(), after);
  }
}

}  // namespace
}  // namespace tandem::function_outside_training_test
