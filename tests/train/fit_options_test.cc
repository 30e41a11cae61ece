// Validation data, class weights, metrics with and without weights, losses that are sums.
#include <gtest/gtest.h>

#include <cmath>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tandem/model.h"

namespace tandem::fit_options_test {
namespace {

using data::Dataset;
using testing::expect_error;
using testing::random_tensor;
using testing::values_of;

Tensor column(const std::vector<double>& values) {
  return constant(values,
                  {.dtype = float32, .shape = {static_cast<std::int64_t>(values.size()), 1}});
}

// y = w x, without training.
Sequential still(double weight, losses::Loss loss = "mse",
                 std::vector<metrics::Metric> metrics = {},
                 std::vector<metrics::Metric> weighted_metrics = {}) {
  Sequential model({layers::Dense(1, {.use_bias = false,
                                      .kernel_initializer = initializers::constant(weight),
                                      .input_shape = {1}})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.0}),
                 .loss = std::move(loss),
                 .metrics = std::move(metrics),
                 .weighted_metrics = std::move(weighted_metrics)});
  return model;
}

TEST(Validation, TakesPlainTensors) {
  Sequential model = still(0.0);
  const Tensor x = column({1, 1}), xv = column({1, 1, 1}), yv = column({1, 2, 3});
  EXPECT_NEAR(model.fit(x, x, {.validation_data = {xv, yv}, .verbose = 0}).at("val_loss")[0],
              (1 + 4 + 9) / 3.0, 1e-6);
  const Tensor weights = constant({1.0F, 0.0F, 2.0F});
  EXPECT_NEAR(
      model.fit(x, x, {.validation_data = {xv, yv, weights}, .verbose = 0}).at("val_loss")[0],
      (1 + 18) / 3.0, 1e-6);
  EXPECT_NEAR(model
                  .fit(Dataset::from_tensors({x, x}), {.validation_data = {xv, yv},
                                                       .validation_steps = 2,
                                                       .validation_batch_size = 1,
                                                       .verbose = 0})
                  .at("val_loss")[0],
              (1 + 4) / 2.0, 1e-6);
}

TEST(Validation, RunsInEveryNthEpoch) {
  const testing::TemporaryDirectory directory;
  Sequential model = still(0.0);
  const Tensor x = column({1, 1}), y = column({3, 3});
  const History history =
      model.fit(x, x,
                {.epochs = 5,
                 .validation_data = {x, y},
                 .validation_freq = 2,
                 .verbose = 0,
                 // Two evaluations without improvement.
                 .callbacks = {callbacks::EarlyStopping({.monitor = "val_loss", .patience = 1}),
                               callbacks::CSVLogger(directory / "log.csv")}});
  EXPECT_EQ(history.at("loss").size(), 4u);
  EXPECT_EQ(history.at("val_loss"), (std::vector<double>{9.0, 9.0}));
  EXPECT_EQ(testing::read_file(directory / "log.csv"),
            "epoch,loss,val_loss\n0,1,NA\n1,1,9\n2,1,NA\n3,1,9\n");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.validation_freq = 0}); },
                                     "[fit] expected validation_freq of at least 1, got 0");
}

TEST(Compile, WarnsOfALossOfProbabilitiesForLogits) {
  const auto warns = [](Model model, const losses::Loss& loss) {
    ::testing::internal::CaptureStderr();
    model.compile({.loss = loss});
    const std::string log = ::testing::internal::GetCapturedStderr();
    return log.find("expects probabilities, and the last layer has no activation") !=
           std::string::npos;
  };
  const Sequential logits({layers::Dense(4, "relu"), layers::Dense(3)});
  const Sequential probabilities({layers::Dense(3), layers::Softmax()});
  EXPECT_TRUE(warns(logits, "sparse_categorical_crossentropy"));
  EXPECT_TRUE(warns(Sequential({layers::Dense(1), logits}), losses::CategoricalCrossentropy()));
  EXPECT_TRUE(warns(Model(layers::Dense(1)), losses::BinaryCrossentropy()));
  EXPECT_FALSE(warns(logits, losses::SparseCategoricalCrossentropy({.from_logits = true})));
  EXPECT_FALSE(warns(logits, "mse"));
  EXPECT_FALSE(warns(probabilities, "sparse_categorical_crossentropy"));
  EXPECT_FALSE(warns(Sequential({layers::Dense(1, "sigmoid")}), losses::BinaryCrossentropy()));
}

TEST(SampleWeight, IsThatOfTheExamples) {
  Sequential model = still(0.0, "mse", {"mae"}, {metrics::MeanAbsoluteError({.name = "weighted"})});
  const Tensor x = column({1, 1, 1, 1}), y = column({1, 2, 3, 4});
  const Tensor weights = constant({1.0F, 0.0F, 2.0F, 1.0F});
  const History history =
      model.fit(x, y, {.batch_size = 4, .verbose = 0, .sample_weight = weights});
  EXPECT_NEAR(history.at("loss")[0], (1 + 18 + 16) / 4.0, 1e-6);
  EXPECT_NEAR(history.at("mae")[0], 10 / 4.0, 1e-6);
  EXPECT_NEAR(history.at("weighted")[0], (1 + 6 + 4) / 4.0, 1e-6);
  EXPECT_NEAR(model.evaluate(x, y, {.sample_weight = weights}).at("loss"), (1 + 18 + 16) / 4.0,
              1e-6);
  // The weights of the last half are those of the validation.
  EXPECT_NEAR(model.fit(x, y, {.validation_split = 0.5, .verbose = 0, .sample_weight = weights})
                  .at("val_loss")[0],
              (18 + 16) / 2.0, 1e-6);
}

TEST(SampleWeight, IsRefusedWhereItWouldBeIgnored) {
  Sequential model = still(0.0);
  const Tensor x = column({1, 1}), weights = constant({1.0F, 0.0F});
  const auto data = Dataset::from_tensors({x, x});
  const char* const kMessage = "a dataset has the weights as the last component of its elements";
  expect_error<InvalidArgumentError>([&] { model.fit(data, {.sample_weight = weights}); },
                                     kMessage);
  expect_error<InvalidArgumentError>([&] { model.evaluate(data, {.sample_weight = weights}); },
                                     kMessage);
  expect_error<InvalidArgumentError>([&] { model.predict(x, {.sample_weight = weights}); },
                                     kMessage);
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(x, x, {.verbose = 0, .class_weight = {{0, 1.0}}, .sample_weight = weights});
      },
      "class weights and sample weights do not go together");
  expect_error<ShapeError>(
      [&] {
        model.fit(x, x, {.validation_split = 0.5, .sample_weight = constant({1.0F, 1.0F, 1.0F})});
      },
      "[fit] x and sample_weight differ in their first axis");
}

TEST(Validation, SplitsOffTheLastExamplesBeforeShuffling) {
  Sequential model = still(0.0);
  const Tensor x = column(std::vector<double>(10, 1.0));
  const Tensor y = column({1, 1, 1, 1, 1, 1, 1, 2, 2, 3});
  const History history = model.fit(x, y, {.epochs = 2, .validation_split = 0.3, .verbose = 0});
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_NEAR(history.at("loss")[static_cast<std::size_t>(epoch)], 1.0, 1e-6);
    EXPECT_NEAR(history.at("val_loss")[static_cast<std::size_t>(epoch)], (4 + 4 + 9) / 3.0, 1e-6);
  }
  // As in Keras, validation data is split off first, and all other examples are trained on.
  EXPECT_NEAR(model.fit(x, y, {.validation_data = {x, x}, .validation_split = 0.3, .verbose = 0})
                  .at("loss")[0],
              (7 + 4 + 4 + 9) / 10.0, 1e-6);
}

TEST(Validation, RefusesContradictoryOptions) {
  Sequential model = still(0.0);
  const Tensor x = column({1, 2, 3});
  const Dataset batches = Dataset::from_tensors({x, x});
  expect_error<InvalidArgumentError>([&] { model.fit(batches, {.validation_split = 0.5}); },
                                     "[fit] validation_split is for plain tensors");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.validation_split = 1.0}); },
                                     "[fit] expected validation_split in [0, 1), got 1");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.validation_split = 0.9}); },
                                     "[fit] 3 examples are too few for validation_split 0.9: it "
                                     "leaves 0 for training and 3 for validation");
  expect_error<InvalidArgumentError>(
      [&] { model.fit(x, x, {.validation_data = batches, .validation_batch_size = 2}); },
      "[fit] validation_batch_size is for plain tensors");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.validation_steps = 2}); },
                                     "there is none: pass validation_data");
  expect_error<InvalidArgumentError>(
      [&] { model.fit(x, x, {.validation_data = batches, .validation_steps = 0}); },
      "[fit] expected validation_steps of at least 1, got 0");
}

TEST(ClassWeight, WeighsTheExamplesOfEachClass) {
  Sequential model = still(0.0);
  const Tensor x = column({1, 1, 1, 1}), y = column({0, 1, 2, 2});
  const std::map<std::int64_t, double> weights = {{1, 3.0}, {2, 0.5}};
  const double expected = (3.0 * 1 + 0.5 * 4 + 0.5 * 4) / 4;
  EXPECT_NEAR(model.fit(x, y, {.verbose = 0, .class_weight = weights}).at("loss")[0], expected,
              1e-6);
  const History history =
      model.fit(Dataset::from_tensors({x, y}),
                {.validation_data = {x, y}, .verbose = 0, .class_weight = weights});
  EXPECT_NEAR(history.at("loss")[0], expected, 1e-6);
  EXPECT_NEAR(history.at("val_loss")[0], (1 + 4 + 4) / 4.0, 1e-6) << "of training alone";
}

TEST(ClassWeight, TakesOneHotTargetsAndClassNumbers) {
  Sequential model({layers::Dense(
      2, {.activation = "softmax", .kernel_initializer = "zeros", .input_shape = {1}})});
  const auto loss_of = [&](const char* loss, const Tensor& targets) {
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.0}), .loss = loss});
    return model.fit(ones({2, 1}), targets, {.verbose = 0, .class_weight = {{0, 1.0}, {1, 10.0}}})
        .at("loss")[0];
  };
  const double expected = std::log(2.0) * (1 + 10) / 2;
  const Tensor one_hot = constant({{1.0, 0.0}, {0.0, 1.0}}, {.dtype = float32});
  EXPECT_NEAR(loss_of("categorical_crossentropy", one_hot), expected, 1e-5);
  EXPECT_NEAR(loss_of("sparse_categorical_crossentropy", constant({0, 1})), expected, 1e-5);
}

TEST(ClassWeight, RefusesSampleWeightsAndOtherTargets) {
  Sequential model = still(0.0);
  const Tensor x = column({1, 1});
  const FitOptions options = {.verbose = 0, .class_weight = {{1, 2.0}}};
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(Dataset::from_tensors({x, x, constant({1.0F, 1.0F})}), options);
      },
      "class weights and sample weights do not go together");
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(Dataset::from_tensors({x, ones({2, 3, 1})}), options);
      },
      "[fit] class_weight expected targets of class numbers");
}

TEST(ClassWeight, RefusesWhatIsNoWeightOrClass) {
  Sequential model = still(0.0);
  const Tensor x = column({1, 1});
  const auto fit = [&](const std::map<std::int64_t, double>& weights) {
    FitOptions options = {.verbose = 0};
    options.class_weight = weights;
    model.fit(x, x, options);
  };
  expect_error<InvalidArgumentError>(
      [&] {
        fit({{0, 1.0}, {1, -0.5}});
      },
      "finite weights of at least 0, got -0.5 for class 1");
  for (const double weight : {std::nan(""), HUGE_VAL})
    expect_error<InvalidArgumentError>([&] { fit({{1, weight}}); }, "finite weights");
  expect_error<InvalidArgumentError>([&] { fit({{-1, 1.0}}); }, "classes of at least 0, got -1");
  EXPECT_NO_THROW(fit({{1, 1.0}, {7, 0.0}})) << "no target is of class 7";
}

TEST(Metrics, AreWeightedOnlyAsWeightedMetrics) {
  Sequential model = still(0.0, "mse", {"mae"}, {metrics::MeanSquaredError()});
  const Dataset data =
      Dataset::from_tensors({column({1, 1}), column({1, 3}), constant({1.0F, 3.0F})});
  const auto result = model.evaluate(data);
  EXPECT_NEAR(result.at("mae"), (1 + 3) / 2.0, 1e-6);
  EXPECT_NEAR(result.at("mean_squared_error"), (1 * 1 + 3 * 9) / 4.0, 1e-6);
  EXPECT_NEAR(result.at("loss"), (1 * 1 + 3 * 9) / 2.0, 1e-6);
  expect_error<InvalidArgumentError>(
      [&] { model.compile({.loss = "mse", .metrics = {"mae"}, .weighted_metrics = {"mae"}}); },
      "[compile] expected metrics of unique names");
}

TEST(SummedLoss, IsSummedOverPositionsToo) {
  const losses::Loss sum = losses::MeanSquaredError({.reduction = losses::Reduction::kSum});
  Sequential model({layers::Dense(
      1, {.use_bias = false, .kernel_initializer = "zeros", .input_shape = {3, 1}})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 1.0}), .loss = sum});
  const Tensor x = ones({2, 3, 1}), y = full({2, 3, 1}, 2.0);
  const Variable kernel = model.variables()[0];
  GradientTape tape;
  const Tensor loss = sum(y, model(x));
  const double expected = tape.gradient(loss, kernel).item<float>();
  EXPECT_EQ(expected, -24.0);
  EXPECT_EQ(model.evaluate(x, y).at("loss"), loss.item<float>());
  model.fit(x, y, {.verbose = 0});
  EXPECT_EQ(kernel.value().item<float>(), -expected);
}

TEST(FrozenLayers, WithoutTrainableVariablesAreFrozenToo) {
  const Layer normalize =
      layers::BatchNormalization({.center = false, .scale = false, .input_shape = {2}});
  Sequential model({normalize, layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = random_tensor({8, 2}, 1, 1.0, 2.0, float32), y = ones({8, 1});
  const auto moments = [&] { return values_of(normalize.variables()[0].value()); };
  model.fit(x, y, {.verbose = 0});
  const std::vector<double> before = moments();
  normalize.set_trainable(false);
  model.fit(x, y, {.verbose = 0});
  EXPECT_EQ(moments(), before);
  normalize.set_trainable(true);
  model.fit(x, y, {.verbose = 0});
  EXPECT_NE(moments(), before);
}

TEST(FrozenLayers, FreezeTheLayersInside) {
  const Layer inner = layers::BatchNormalization();
  const Layer block = layers::Stack({layers::Dense(2), inner}, {.input_shape = {2}});
  Sequential model({block, layers::Dense(1)});
  model.get_layer(0).set_trainable(false);
  EXPECT_FALSE(inner.trainable());
  EXPECT_EQ(model.trainable_variables().size(), 2U);
  block.set_trainable(true);
  EXPECT_TRUE(inner.trainable());
}

TEST(Layers, AreFoundByNameAndIndex) {
  Sequential model({layers::Dense(3, {.input_shape = {4}}), layers::Dense(2, {.name = "head"})});
  EXPECT_EQ(model.get_layer("head").shared(), model.layers()[1].shared());
  EXPECT_EQ(model.get_layer("dense").shared(), model.get_layer(0).shared());
  EXPECT_EQ(model.get_layer(-1).shared(), model.get_layer(1).shared());
  expect_error<NotFoundError>([&] { model.get_layer("tail"); },
                              "[get_layer] the model has no layer 'tail', only 'dense', 'head'");
  expect_error<OutOfRangeError>([&] { model.get_layer(2); },
                                "[get_layer] expected an index in [-2, 2), got 2");
}

TEST(Layers, TakeTrainingAsAnArgument) {
  Sequential model({layers::Dropout(0.99, {.input_shape = {100}})});
  const Tensor x = ones({1, 100});
  EXPECT_EQ(values_of(model(x, false)), values_of(x));
  EXPECT_NE(values_of(model(x, true)), values_of(x));
  EXPECT_NE(values_of(model.get_layer(0)(x, true)), values_of(x));
}

}  // namespace
}  // namespace tandem::fit_options_test
