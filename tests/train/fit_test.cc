#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/device.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::fit_test {
namespace {

using data::Dataset;
using data::Example;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::random_values;
using testing::values_of;

constexpr int kExamples = 10;

Tensor column(const std::vector<double>& values) {
  return constant(values,
                  {.dtype = float32, .shape = {static_cast<std::int64_t>(values.size()), 1}});
}

std::vector<double> rounded(std::vector<double> values) {
  for (double& value : values) value = static_cast<float>(value);
  return values;
}

Sequential line(optimizers::Optimizer optimizer, losses::Loss loss = "mse",
                std::vector<metrics::Metric> metrics = {}) {
  Sequential model({layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {1}})});
  model.compile(
      {.optimizer = std::move(optimizer), .loss = std::move(loss), .metrics = std::move(metrics)});
  return model;
}

// Fits y = w x + b by gradient descent, without the library.
struct Line {
  double w = 0.0, b = 0.0;
  double last_loss = 0.0;  // the mean of the losses during the last epoch

  void epoch(const std::vector<double>& x, const std::vector<double>& y,
             const std::vector<double>& weight, std::size_t batch, double rate, bool sum = false) {
    double total = 0.0;
    for (std::size_t begin = 0; begin < x.size(); begin += batch) {
      const std::size_t end = std::min(begin + batch, x.size());
      const double divisor = sum ? 1.0 : static_cast<double>(end - begin);
      double dw = 0.0, db = 0.0;
      for (std::size_t i = begin; i < end; ++i) {
        const double error = w * x[i] + b - y[i];
        total += weight[i] * error * error * (sum ? static_cast<double>(end - begin) : 1.0);
        dw += weight[i] * 2 * error * x[i] / divisor;
        db += weight[i] * 2 * error / divisor;
      }
      w -= rate * dw;
      b -= rate * db;
    }
    last_loss = total / static_cast<double>(x.size());
  }
};

struct Points {
  std::vector<double> x = rounded(random_values(kExamples, 3)),
                      y = rounded(random_values(kExamples, 4));
  std::vector<double> weights = rounded(random_values(kExamples, 5, 0.0, 2.0)),
                      ones = std::vector<double>(kExamples, 1.0);
};

void expect_line(const Model& model, const Line& line) {
  EXPECT_NEAR(model.variables()[0].value().to_vector<float>()[0], line.w, 1e-5);
  EXPECT_NEAR(model.variables()[1].value().to_vector<float>()[0], line.b, 1e-5);
}

TEST(Fit, IsGradientDescentAlsoWithAnUnevenLastBatch) {
  const Points points;
  Sequential model = line(optimizers::SGD({.learning_rate = 0.1}), "mse", {"mae"});
  const History history =
      model.fit(Dataset::from_tensor_slices({column(points.x), column(points.y)}).batch(4),
                {.epochs = 3, .verbose = 0});
  Line expected;
  ASSERT_EQ(history.epoch, (std::vector<std::int64_t>{0, 1, 2}));
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    expected.epoch(points.x, points.y, points.ones, 4, 0.1);
    EXPECT_NEAR(history.at("loss")[epoch], expected.last_loss, 1e-5);
    EXPECT_GT(history.at("mae")[epoch], 0.0);
  }
  expect_line(model, expected);
  EXPECT_EQ(model.optimizer().iterations(), 9);
}

TEST(Fit, WeighsExamples) {
  const Points points;
  Sequential model = line(optimizers::SGD({.learning_rate = 0.1}));
  const Tensor weights = constant(points.weights, {.dtype = float32});
  const History history =
      model.fit(Dataset::from_tensor_slices({column(points.x), column(points.y), weights}).batch(4),
                {.epochs = 2, .verbose = 0});
  Line expected;
  for (int epoch = 0; epoch < 2; ++epoch)
    expected.epoch(points.x, points.y, points.weights, 4, 0.1);
  expect_line(model, expected);
  EXPECT_NEAR(history.at("loss")[1], expected.last_loss, 1e-5);
}

TEST(Fit, ASummedLossIsNotDivided) {
  const Points points;
  Sequential model = line(optimizers::SGD({.learning_rate = 0.02}),
                          losses::MeanSquaredError({.reduction = losses::Reduction::kSum}));
  const History history = model.fit(
      Dataset::from_tensor_slices({column(points.x), column(points.y)}).batch(4), {.verbose = 0});
  Line expected;
  expected.epoch(points.x, points.y, points.ones, 4, 0.02, true);
  expect_line(model, expected);
  EXPECT_NEAR(history.at("loss")[0], expected.last_loss, 1e-4);
}

TEST(Fit, LossesOverPositionsAreAveragedOverThem) {
  const Tensor x = random_tensor({4, 3, 2}, 1, -1.0, 1.0, float32),
               y = random_tensor({4, 3, 2}, 2, -1.0, 1.0, float32);
  Sequential model({layers::Lambda([](const Tensor& t) { return t; }, {.input_shape = {3, 2}}),
                    layers::Dense(2)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const double expected = reduce_mean(square(y - model(x))).item<float>();
  EXPECT_NEAR(model.evaluate(x, y).at("loss"), expected, 1e-6);
}

TEST(Fit, PlainTensorsAreShuffledByTheSeed) {
  const Points points;
  const auto weights_after = [&](std::optional<std::int64_t> seed, bool shuffle) {
    Sequential model = line(optimizers::SGD({.learning_rate = 0.1}));
    model.fit(
        column(points.x), column(points.y),
        {.epochs = 2, .batch_size = 3, .verbose = 0, .shuffle_seed = seed, .shuffle = shuffle});
    return model.variables()[0].value().to_vector<float>();
  };
  EXPECT_EQ(weights_after(1, true), weights_after(1, true));
  EXPECT_NE(weights_after(1, true), weights_after(2, true));
  EXPECT_EQ(weights_after(1, false), weights_after(2, false));
  Line expected;
  for (int epoch = 0; epoch < 2; ++epoch) expected.epoch(points.x, points.y, points.ones, 3, 0.1);
  EXPECT_NEAR(weights_after(1, false)[0], expected.w, 1e-5);
}

TEST(Fit, EachEpochHasItsOwnOrder) {
  std::vector<double> met;
  const Layer record = layers::Lambda(
      [&](const Tensor& x) {
        for (double value : values_of(x)) met.push_back(value);
        return x;
      },
      {.input_shape = {1}});
  Sequential model({record, layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = true});
  std::vector<double> numbers(20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  met.clear();
  model.fit(column(numbers), column(numbers),
            {.epochs = 2, .batch_size = 5, .verbose = 0, .shuffle_seed = 1});
  ASSERT_EQ(met.size(), 40u);
  std::vector<double> first(met.begin(), met.begin() + 20), second(met.begin() + 20, met.end());
  EXPECT_NE(first, second);
  for (std::vector<double>* epoch : {&first, &second}) {
    EXPECT_NE(*epoch, numbers);
    std::sort(epoch->begin(), epoch->end());
    EXPECT_EQ(*epoch, numbers) << "every example once";
  }
}

TEST(Fit, AStepThatReadsElementsGetsAnErrorNamingRunEagerly) {
  const Layer curious = layers::Lambda(
      [](const Tensor& x) { return x * x.to_vector<float>().front(); }, {.input_shape = {1}});
  Sequential model({curious, layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<FailedPreconditionError>(
      [&] {
        model.fit(column({1, 2}), column({1, 2}), {.verbose = 0});
      },
      "run_eagerly = true");
}

TEST(Fit, ATracedStepTrainsAsAnEagerOne) {
  std::vector<double> numbers(37);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i) / 37.0;
  int calls = 0;
  const auto train = [&](bool run_eagerly) {
    random::set_seed(6);
    calls = 0;
    const Layer count = layers::Lambda(
        [&](const Tensor& x) {
          ++calls;
          return x;
        },
        {.input_shape = {1}});
    Sequential model({count, layers::Dense(8, {.activation = "tanh"}), layers::Dropout(0.2),
                      layers::BatchNormalization(), layers::Dense(1)});
    model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                   .loss = "mse",
                   .metrics = {"mae"},
                   .run_eagerly = run_eagerly});
    calls = 0;
    const auto history = model.fit(column(numbers), column(numbers),
                                   {.epochs = 4, .batch_size = 8, .verbose = 0, .shuffle_seed = 1});
    std::vector<double> metrics = history.at("loss");
    for (double value : history.at("mae")) metrics.push_back(value);
    for (const auto& [name, value] :
         model.evaluate(column(numbers), column(numbers), {.verbose = 0}))
      metrics.push_back(value);
    for (double value : values_of(model.predict(column(numbers), {.verbose = 0})))
      metrics.push_back(value);
    return metrics;
  };
  const std::vector<double> eager = train(true);
  const int eager_calls = calls;
  const std::vector<double> traced = train(false);
  EXPECT_EQ(calls, 6);  // fit, evaluate, predict; whole batches and the last ones
  EXPECT_GT(eager_calls, 20);
  ASSERT_EQ(eager.size(), traced.size());
  for (std::size_t i = 0; i < eager.size(); ++i)
    EXPECT_NEAR(traced[i], eager[i], 1e-5 * std::max(1.0, std::abs(eager[i])));
}

TEST(Fit, TakesTheInputsOfAFunctionalModelSeparately) {
  const SymbolicInput a = Input({1}), b = Input({2});
  Functional model({a, b}, layers::Dense(1)(layers::Concatenate()({a, b})));
  model.compile({.optimizer = "adam", .loss = "mse"});
  const Dataset data =
      Dataset::from_tensor_slices({ones({6, 1}), ones({6, 2}), full({6, 1}, 3.0)}).batch(2);
  const History history = model.fit(data, {.epochs = 2, .verbose = 0});
  EXPECT_LT(history.at("loss")[1], history.at("loss")[0]);
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(Dataset::from_tensor_slices({ones({6, 1}), ones({6, 2})}).batch(2),
                  {.verbose = 0});
      },
      "[fit] expected elements of 3 to 4 components (inputs, then targets, then perhaps sample "
      "weights), got 2");
}

TEST(Fit, TakesTensorsForSeveralInputs) {
  const auto train = [](const auto& fit) {
    random::set_seed(3);
    const SymbolicInput a = Input({1}), b = Input({2});
    Functional model({a, b}, layers::Dense(1)(layers::Concatenate()({a, b})));
    model.compile({.optimizer = "sgd", .loss = "mse"});
    return fit(model);
  };
  const Tensor x = testing::random_tensor({8, 1}, 1, -1, 1, float32),
               z = testing::random_tensor({8, 2}, 2, -1, 1, float32), y = full({8, 1}, 3.0);
  const auto of_tensors = train([&](Functional& model) {
    return model.fit(
        {x, z}, y,
        {.epochs = 2, .batch_size = 2, .validation_split = 0.25, .verbose = 0, .shuffle = false});
  });
  const auto of_data = train([&](Functional& model) {
    const auto all = Dataset::from_tensor_slices({x, z, y});
    return model.fit(all.take(6).batch(2),
                     {.epochs = 2, .validation_data = all.skip(6).batch(2), .verbose = 0});
  });
  EXPECT_EQ(of_tensors.at("loss"), of_data.at("loss"));
  EXPECT_EQ(of_tensors.at("val_loss"), of_data.at("val_loss"));
  train([&](Functional& model) {
    const auto batches = Dataset::from_tensor_slices({x, z, y}).batch(32);
    EXPECT_EQ(model.evaluate({x, z}, y).at("loss"), model.evaluate(batches).at("loss"));
    EXPECT_EQ(model.predict({x, z}).to_vector<float>(), model({x, z}).to_vector<float>());
    return 0;
  });
}

TEST(Fit, BuildsAModelFromTheData) {
  Sequential model({layers::Dense(2)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  model.fit(ones({4, 3}), ones({4, 2}), {.verbose = 0});
  EXPECT_EQ(model.count_params(), 8);
}

TEST(Fit, ValidatesAfterEachEpoch) {
  const Points points;
  Sequential model = line(optimizers::SGD({.learning_rate = 0.1}), "mse", {"mae"});
  const Dataset data = Dataset::from_tensor_slices({column(points.x), column(points.y)}).batch(4);
  const History history = model.fit(data, {.epochs = 2, .validation_data = data, .verbose = 0});
  const auto result = model.evaluate(data);
  EXPECT_EQ(history.at("val_loss")[1], result.at("loss"));
  EXPECT_EQ(history.at("val_mae")[1], result.at("mae"));
  EXPECT_NE(history.at("val_loss")[0], result.at("loss"));
}

TEST(Fit, StepsPerEpochCutEndlessData) {
  Sequential model = line(optimizers::SGD());
  const History history =
      model.fit(Dataset::from_tensor_slices({ones({4, 1}), ones({4, 1})}).repeat().batch(2),
                {.epochs = 2, .steps_per_epoch = 7, .verbose = 0});
  EXPECT_EQ(history.epoch.size(), 2u);
  EXPECT_EQ(model.optimizer().iterations(), 14);
}

TEST(Fit, InitialEpochCountsFromThere) {
  Sequential model = line(optimizers::SGD());
  EXPECT_EQ(
      model.fit(ones({4, 1}), ones({4, 1}), {.epochs = 5, .initial_epoch = 3, .verbose = 0}).epoch,
      (std::vector<std::int64_t>{3, 4}));
}

TEST(Fit, RefusesBadData) {
  Sequential model = line(optimizers::SGD());
  const Tensor x = ones({4, 1});
  const FitOptions quiet = {.verbose = 0};
  const auto fit = [&](const Dataset& data) {
    return [&model, &quiet, data] { model.fit(data, quiet); };
  };
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.batch_size = 0, .verbose = 0}); },
                                     "[fit] expected a batch_size of at least 1, got 0");
  expect_error<InvalidArgumentError>([&] { model.evaluate(x, x, {.batch_size = -1}); },
                                     "[evaluate]");
  expect_error<InvalidArgumentError>(fit(Dataset()),
                                     "[fit] expected a dataset, got an undefined one");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensor_slices({x, x}).batch(2).take(0)),
                                     "[fit] the data is empty: it has no batches");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensor_slices({x}).batch(2)),
                                     "[fit] expected elements of 2 to 3 components");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensor_slices({x, x, x, x}).batch(2)),
                                     "got 4");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensors({constant(1.0), constant(1.0)})),
                                     "[fit] expected elements with a batch axis, got a scalar");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensors({x, ones({3, 1})})),
                                     "differ in their first axis: shapes (4, 1) and (3, 1)");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensors({ones({0, 1}), ones({0, 1})})),
                                     "[fit] expected batches of at least one example, got 0");
  expect_error<InvalidArgumentError>(fit(Dataset::from_tensors({x, x, ones({4, 1, 1})})),
                                     "[fit] expected sample weights of shape (4,), got (4, 1, 1)");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.epochs = -1}); },
                                     "[fit] expected epochs");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.steps_per_epoch = 0}); },
                                     "steps_per_epoch");
  expect_error<InvalidArgumentError>([&] { model.fit(x, x, {.verbose = 3}); }, "verbose");
  const Dataset good = Dataset::from_tensor_slices({x, x}).batch(2);
  expect_error<InvalidArgumentError>([&] { model.fit(good, {.batch_size = 2}); },
                                     "batch() the dataset instead");
  expect_error<InvalidArgumentError>(
      [&] { model.fit(good, {.validation_data = good.take(0), .verbose = 0}); },
      "the validation data is empty");
}

TEST(Fit, NamesTheLayerThatAShapeDoesNotFit) {
  Sequential model({layers::Dense(3, {.input_shape = {4}, .name = "first"}),
                    layers::Dense(2, {.name = "second"})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(ones({8, 5}), ones({8, 2}), {.verbose = 0});
      },
      "[first]");
}

TEST(Fit, ALabelOutOfRangeLeavesTheModelUnchanged) {
  // Kernels on a GPU run to their end: the error is thrown later, after the update was made.
  const DeviceScope cpu("/cpu:0");
  Sequential model({layers::Dense(3, {.input_shape = {4}})});
  model.compile(
      {.optimizer = "sgd", .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const std::vector<float> before = model.variables()[0].value().to_vector<float>();
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(ones({2, 4}), constant({0, 3}), {.verbose = 0});
      },
      "3");
  EXPECT_EQ(model.variables()[0].value().to_vector<float>(), before);
}

TEST(Fit, ALabelOutOfRangeOnAGpuIsAnErrorToo) {
  testing::use_gpus(1);
  Sequential model({layers::Dense(3, {.input_shape = {4}})});
  model.compile({.optimizer = "sgd",
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const std::string text = "is outside the valid range [0, 3)";
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(ones({2, 4}), constant({0, 3}), {.verbose = 0});
      },
      text);
  expect_error<InvalidArgumentError>([&] { model.evaluate(ones({2, 4}), constant({0, 3})); }, text);
  // The error was thrown once; later calls do not throw it again.
  model.fit(ones({2, 4}), constant({0, 2}), {.verbose = 0});
}

TEST(Evaluate, CountsEveryExampleOnce) {
  Sequential model({layers::Lambda([](const Tensor& x) { return x; }, {.input_shape = {3}})});
  model.compile({.loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const Tensor logits = constant(
      {{9.0, 0.0, 0.0}, {0.0, 9.0, 0.0}, {0.0, 0.0, 9.0}, {9.0, 0.0, 0.0}, {9.0, 0.0, 0.0}});
  const auto result = model.evaluate(logits, constant({0, 1, 2, 1, 2}), {.batch_size = 2});
  EXPECT_DOUBLE_EQ(result.at("accuracy"), 0.6);
  const double right = std::log(1 + 2 * std::exp(-9.0)), wrong = 9.0 + right;
  EXPECT_NEAR(result.at("loss"), (3 * right + 2 * wrong) / 5, 1e-5);
  EXPECT_EQ(model.evaluate(logits, constant({0, 1, 0, 0, 0}), {.batch_size = 2, .steps = 1})
                .at("accuracy"),
            1.0);
  expect_error<InvalidArgumentError>(
      [&] {
        model.evaluate(
            Dataset::from_tensor_slices({logits, constant({0, 1, 2, 1, 2})}).batch(2).take(0));
      },
      "[evaluate] the data is empty: it has no batches");
}

TEST(Evaluate, RunsLayersWithoutTraining) {
  Sequential model({layers::Dropout(0.9, {.input_shape = {4}})});
  model.compile({.loss = "mse"});
  const random::GeneratorState before = random::get_state();
  EXPECT_EQ(model.evaluate(ones({64, 4}), ones({64, 4})).at("loss"), 0.0);
  EXPECT_EQ(random::get_state(), before) << "evaluation generates no random numbers";
}

TEST(Predict, JoinsBatchesInOrder) {
  Sequential model({layers::Lambda([](const Tensor& x) { return x * 2.0; }, {.input_shape = {1}})});
  const std::vector<double> x = {1, 2, 3, 4, 5};
  expect_tensor(model.predict(column(x), {.batch_size = 2}), float32, {5, 1}, {2, 4, 6, 8, 10});
  const Dataset with_targets = Dataset::from_tensor_slices({column(x), column(x)}).batch(3);
  expect_tensor(model.predict(with_targets), float32, {5, 1}, {2, 4, 6, 8, 10});
  expect_error<InvalidArgumentError>([&] { model.predict(with_targets.take(0)); },
                                     "[predict] the data is empty");
}

}  // namespace
}  // namespace tandem::fit_test
