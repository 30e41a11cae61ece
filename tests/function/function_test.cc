#include "tandem/function.h"

#include <gtest/gtest.h>

#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem::function_test {
namespace {

using testing::elements_of;
using testing::expect_same;
using testing::Trained;

TEST(Function, IsTracedOnceForEachSignature) {
  int calls = 0;
  const auto twice = function([&](const Tensor& x) {
    ++calls;
    return multiply(x, 2.0);
  });
  EXPECT_EQ(twice(constant({1.0f, 2.0f})).to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(twice(constant({3.0f, 4.0f})).to_vector<float>(), (std::vector<float>{6, 8}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(twice(constant({5.0f})).to_vector<float>(), (std::vector<float>{10}));
  EXPECT_EQ(twice(constant({5.0}, {.dtype = float64})).to_vector<double>(),
            (std::vector<double>{10}));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(twice.num_traces(), 3u);
}

TEST(Function, PlainValuesArePartOfTheSignature) {
  int calls = 0;
  const auto scaled = function([&](const Tensor& x, double factor) {
    ++calls;
    return multiply(x, factor);
  });
  EXPECT_EQ(scaled(constant({1.0f}), 2.0).item<float>(), 2.0f);
  EXPECT_EQ(scaled(constant({1.0f}), 3.0).item<float>(), 3.0f);
  EXPECT_EQ(scaled(constant({4.0f}), 2.0).item<float>(), 8.0f);
  EXPECT_EQ(calls, 2);
}

TEST(Function, StringArgumentsMayBeLiteralsStringsOrViews) {
  int calls = 0;
  const auto activated = function([&](const Tensor& x, std::string_view how) {
    ++calls;
    return how == "relu" ? nn::relu(x) : negative(x);
  });
  const Tensor x = constant({-1.0f, 2.0f});
  EXPECT_EQ(activated(x, "relu").to_vector<float>(), (std::vector<float>{0, 2}));
  EXPECT_EQ(activated(x, "none").to_vector<float>(), (std::vector<float>{1, -2}));
  EXPECT_EQ(activated(x, std::string("relu")).to_vector<float>(), (std::vector<float>{0, 2}));
  EXPECT_EQ(activated(x, std::string_view("none")).to_vector<float>(), (std::vector<float>{1, -2}));
  const char* const relu = "relu";
  EXPECT_EQ(activated(x, relu).to_vector<float>(), (std::vector<float>{0, 2}));
  EXPECT_EQ(calls, 2);
}

TEST(Function, ReadingElementsOfSymbolicTensorsThrows) {
  const auto peeks = function([](const Tensor& x) { return full({}, x.item<float>()); });
  EXPECT_THROW(peeks(constant({1.0f})), FailedPreconditionError);
}

TEST(Function, VariablesAreReadAndWrittenInProgramOrder) {
  Variable v(constant({1.0f, 2.0f}));
  const auto step = function([&](const Tensor& x) {
    const Tensor before = v.value();
    v.assign_add(x);
    const Tensor after = v.value();
    return std::pair(before, multiply(after, before));
  });
  const auto [before, product] = step(constant({10.0f, 20.0f}));
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(product.to_vector<float>(), (std::vector<float>{11, 44}));
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{11, 22}));
  const Tensor kept = v.value();
  step(constant({1.0f, 1.0f}));
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{11, 22}));
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{12, 23}));
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(Function, GeneratesNewRandomNumbersInEachCallAsEagerCallsDo) {
  const auto sample = [] { return add(random::normal({4}), random::uniform({4})); };
  random::set_seed(7);
  const std::vector<float> first = sample().to_vector<float>();
  const std::vector<float> second = sample().to_vector<float>();
  random::set_seed(7);
  const auto traced = function(sample);
  EXPECT_EQ(traced().to_vector<float>(), first);
  EXPECT_EQ(traced().to_vector<float>(), second);
  EXPECT_EQ(random::get_state().offset, 4u);
}

Trained train(bool traced, const optimizers::Optimizer& optimizer) {
  random::set_seed(3);
  Sequential model({layers::Dense(16, {.activation = "relu", .input_shape = {8}}),
                    layers::Dropout(0.25), layers::BatchNormalization(), layers::Dense(4)});
  const Tensor x = random::normal({12, 8});
  const Tensor y = random::uniform_int({12}, 0, 4);
  const auto step = [&](const Tensor& inputs, const Tensor& labels) {
    GradientTape tape;
    const Tensor logits = model(inputs, {.training = true});
    const Tensor loss = reduce_mean(nn::sparse_softmax_cross_entropy(labels, logits));
    optimizers::Optimizer(optimizer).apply_gradients(
        tape.gradient(loss, model.trainable_variables()), model.trainable_variables());
    return loss;
  };
  const auto replayed = function(step);
  Trained result;
  for (int i = 0; i < 50; ++i)
    result.losses.push_back((traced ? replayed(x, y) : step(x, y)).item<float>());
  result.weights = elements_of(model.variables());
  EXPECT_EQ(optimizer.iterations(), 50);
  return result;
}

TEST(Function, TrainsAsEagerlyWithMomentum) {
  const auto make = [] {
    return optimizers::SGD(
        {.learning_rate = optimizers::schedules::exponential_decay(0.1, 10, 0.5), .momentum = 0.9});
  };
  expect_same(train(false, make()), train(true, make()));
}

TEST(Function, TrainsAsEagerlyWithAdam) {
  const auto make = [] { return optimizers::Adam(); };
  expect_same(train(false, make()), train(true, make()));
}

}  // namespace
}  // namespace tandem::function_test
