// Regularizers: their penalty is in the loss of training steps, once, and in its gradient.
#include <gtest/gtest.h>

#include "support/strategies.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::regularizers_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::values_of;

TEST(Regularizer, IsAPenaltyOfAValue) {
  const Tensor w = constant({1.0, -2.0, 3.0}, {.dtype = float64});
  EXPECT_NEAR(regularizers::L1(0.5)(w).item(), 3.0, 1e-12);
  EXPECT_NEAR(regularizers::L2({.l2 = 0.5})(w).item(), 7.0, 1e-12);
  EXPECT_NEAR(regularizers::L1L2({.l1 = 1.0, .l2 = 2.0})(w).item(), 34.0, 1e-12);
  EXPECT_NEAR(regularizers::l2(0.1)(w).item(), 1.4, 1e-12);
  EXPECT_NEAR(Regularizer("l1")(w).item(), 0.06, 1e-12);
  EXPECT_NEAR(Regularizer("l1_l2")(w).item(), 0.2, 1e-12);
  EXPECT_FALSE(Regularizer().defined());
  expect_error<InvalidArgumentError>([] { Regularizer("l3"); },
                                     "[regularizers] expected one of: l1, l2, l1_l2; got 'l3'");
  expect_error<InvalidArgumentError>([] { regularizers::L2(-1.0); }, "[l2] expected a factor");
  const Regularizer own = [](const Tensor& x) { return square(x); };
  expect_error<ShapeError>([&] { own(w); }, "expected a scalar penalty, got shape (3,)");
}

TEST(Losses, AreThePenaltiesOfTrainedVariables) {
  Sequential model({layers::Dense(2, {.kernel_initializer = "ones",
                                      .kernel_regularizer = regularizers::L2(0.5),
                                      .bias_regularizer = "l1",
                                      .input_shape = {3}}),
                    layers::Dense(1)});
  ASSERT_EQ(model.losses().size(), 2u);
  EXPECT_EQ(model.losses()[0].item(), 3.0);
  EXPECT_EQ(model.losses()[1].item(), 0.0);
  EXPECT_EQ(model.layers()[1].losses().size(), 0u);
  model.layers()[0].trainable = false;  // as in Keras
  EXPECT_TRUE(model.losses().empty());
}

TEST(Losses, OfConvolutionsEmbeddingsAndOwnLayers) {
  struct Scale : layers::Layer {
    void build(const Shape& shape) override {
      w = add_weight(
          {.shape = {shape[-1]}, .initializer = "ones", .regularizer = "l2", .name = "w"});
    }
    Tensor call(const Tensor& x) override { return x * w; }
    Variable w;
  };
  Sequential conv(
      {layers::Conv2D(
           2, 3,
           {.kernel_initializer = "ones", .kernel_regularizer = "l2", .input_shape = {8, 8, 1}}),
       layers::DepthwiseConv2D(
           3, {.kernel_initializer = "ones", .depthwise_regularizer = regularizers::L1(1.0)}),
       Scale()});
  ASSERT_EQ(conv.losses().size(), 3u);
  EXPECT_NEAR(conv.losses()[0].item(), 0.18, 1e-6);
  EXPECT_NEAR(conv.losses()[1].item(), 18.0, 1e-6);
  EXPECT_NEAR(conv.losses()[2].item(), 0.02, 1e-6);
  const layers::Embedding table(
      5, 2, {.embeddings_initializer = "ones", .embeddings_regularizer = regularizers::L2(1.0)});
  table(zeros({1, 1}, int32));
  ASSERT_EQ(table.losses().size(), 1u);
  EXPECT_EQ(table.losses()[0].item(), 10.0);
}

Sequential regularized(double factor) {
  return Sequential({layers::Dense(1, {.use_bias = false,
                                       .kernel_initializer = "ones",
                                       .kernel_regularizer = regularizers::L2(factor),
                                       .input_shape = {2}})});
}

// The penalty's part of the gradient of w = (1, 1) is 2 * factor * w.
TEST(Fit, AddsThePenaltyToTheLossAndItsGradient) {
  const Tensor x = constant({{1.0, 0.0}, {0.0, 1.0}}), y = zeros({2, 1});
  for (const bool eager : {false, true}) {
    Sequential model = regularized(0.5);
    model.compile({.optimizer = optimizers::SGD(0.1), .loss = "mse", .run_eagerly = eager});
    EXPECT_NEAR(model.evaluate(x, y).at("loss"), 1.0 + 1.0, 1e-6);
    const History history = model.fit(x, y, {.epochs = 1, .batch_size = 2, .verbose = 0});
    EXPECT_NEAR(history.at("loss")[0], 2.0, 1e-6);
    // d mse / dw = w, of the mean over two examples; the penalty adds 2 * 0.5 * w.
    expect_tensor(model.get_weights()[0], float32, {2, 1}, {0.8, 0.8}, 1e-6);
    EXPECT_NEAR(model.train_on_batch(x, y).at("loss"), 0.64 + 0.64, 1e-6);
    expect_tensor(model.get_weights()[0], float32, {2, 1}, {0.64, 0.64}, 1e-6);
  }
}

TEST(Fit, AddsThePenaltyToALossThatIsASum) {
  const Tensor x = constant({{1.0, 0.0}, {0.0, 1.0}}), y = zeros({2, 1});
  Sequential model = regularized(0.5);
  model.compile({.optimizer = optimizers::SGD(0.1),
                 .loss = losses::MeanSquaredError({.reduction = losses::Reduction::kSum})});
  EXPECT_NEAR(model.fit(x, y, {.batch_size = 2, .verbose = 0}).at("loss")[0], 2.0 + 1.0, 1e-6);
  // 2 * w of the sum, and w of the penalty.
  expect_tensor(model.get_weights()[0], float32, {2, 1}, {0.7, 0.7}, 1e-6);
}

TEST(Fit, AddsThePenaltyOnceForAllReplicas) {
  testing::cpus(3);
  random::set_seed(1);
  const Tensor x = random::normal({8, 2}), y = reduce_sum(x, 1, true);
  const auto train = [&](const distribute::Strategy& strategy) {
    Sequential model;
    {
      auto scope = strategy.scope();
      model = regularized(0.25);
      model.compile({.optimizer = optimizers::SGD(0.1), .loss = "mse"});
    }
    // 8 examples in batches of 5 and 3: the second batch leaves replicas with different sizes.
    const History history =
        model.fit(x, y, {.epochs = 2, .batch_size = 5, .verbose = 0, .shuffle = false});
    std::vector<double> result = values_of(model.get_weights()[0]);
    for (const double loss : history.at("loss")) result.push_back(loss);
    return result;
  };
  const std::vector<double> one = train(distribute::OneDeviceStrategy("/cpu:0"));
  for (const std::vector<std::string>& devices :
       {std::vector<std::string>{"/cpu:0", "/cpu:1"},
        std::vector<std::string>{"/cpu:0", "/cpu:1", "/cpu:2"}}) {
    const std::vector<double> several = train(distribute::MirroredStrategy({.devices = devices}));
    ASSERT_EQ(several.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(several[i], one[i], 1e-6) << i;
  }
}

}  // namespace
}  // namespace tandem::regularizers_test
