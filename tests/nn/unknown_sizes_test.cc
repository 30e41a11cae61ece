// Losses and metrics of tensors with unknown batch sizes: in functions with an input_signature and
// in graphs.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::unknown_sizes_test {
namespace {

using testing::error_of;
using testing::expect_parts;

struct Case {
  const char* name;
  Shape y_true, y_pred;  // without the batch
  DType labels = float32;
};

const std::vector<Case> kLosses = {{"mean_squared_error", {3}, {3}},
                                   {"mean_absolute_error", {3}, {3}},
                                   {"huber", {3}, {3}},
                                   {"hinge", {3}, {3}},
                                   {"kl_divergence", {3}, {3}},
                                   {"binary_crossentropy", {3}, {3}},
                                   {"binary_crossentropy", {}, {1}},
                                   {"categorical_crossentropy", {3}, {3}},
                                   {"sparse_categorical_crossentropy", {}, {3}, int32},
                                   {"sparse_categorical_crossentropy", {1}, {3}, int64},
                                   {"sparse_categorical_crossentropy", {4}, {4, 3}, int32}};

const std::vector<Case> kMetrics = {{"accuracy", {}, {3}, int32},
                                    {"accuracy", {3}, {3}},
                                    {"accuracy", {}, {1}},
                                    {"sparse_categorical_accuracy", {1}, {3}, int32},
                                    {"categorical_accuracy", {3}, {3}},
                                    {"binary_accuracy", {3}, {3}},
                                    {"sparse_top_k_categorical_accuracy", {}, {7}, int32},
                                    {"mean_squared_error", {3}, {3}},
                                    {"mean_absolute_error", {3}, {3}},
                                    {"precision", {3}, {3}},
                                    {"recall", {3}, {3}},
                                    {"auc", {1}, {1}}};

Shape batched(const Shape& shape, std::int64_t batch) {
  return (shape.known() ? shape : Shape::scalar()).with_leading(batch);
}

Tensor targets(const Case& c, std::int64_t batch) {
  const Shape shape = batched(c.y_true, batch);
  if (is_floating(c.labels)) return random::uniform(shape, 0.1, 0.9);
  return random::uniform_int(shape, 0, 3, {.dtype = c.labels});
}

Tensor predictions(const Case& c, std::int64_t batch) {
  return random::uniform(batched(c.y_pred, batch), 0.1, 0.9);
}

FunctionOptions unknown_batches(const Case& c) {
  return {.input_signature = {{batched(c.y_true, -1), c.labels}, {batched(c.y_pred, -1), float32}}};
}

std::vector<float> numbers(const Tensor& tensor) {
  return cast(tensor, float32).to_vector<float>();
}

TEST(UnknownBatches, LossesAndGradientsEqualThoseOfKnownSizes) {
  for (const Case& c : kLosses) {
    SCOPED_TRACE(c.name);
    const losses::Loss loss = losses::from_name(c.name);
    const auto slope = [&](const Tensor& y_true, const Tensor& y_pred) {
      GradientTape tape;
      tape.watch(y_pred);
      const Tensor value = loss(y_true, y_pred);
      return std::pair(value, tape.gradient(value, y_pred));
    };
    const auto traced = function(slope, unknown_batches(c));
    for (std::int64_t batch : {4, 1, 6}) {
      const Tensor y_true = targets(c, batch), y_pred = predictions(c, batch);
      const auto expected = slope(y_true, y_pred), got = traced(y_true, y_pred);
      EXPECT_EQ(numbers(got.first), numbers(expected.first));
      EXPECT_EQ(numbers(got.second), numbers(expected.second));
    }
    EXPECT_EQ(traced.num_traces(), 1u);
  }
}

TEST(UnknownBatches, StatisticsOfMetricsEqualThoseOfKnownSizes) {
  for (const Case& c : kMetrics) {
    SCOPED_TRACE(c.name);
    const metrics::Metric metric = metrics::from_name(c.name);
    const auto statistics = [&](const Tensor& y_true, const Tensor& y_pred) {
      return metric.base().statistics(y_true, y_pred, {});
    };
    const auto traced = function(statistics, unknown_batches(c));
    for (std::int64_t batch : {4, 1}) {
      const Tensor y_true = targets(c, batch), y_pred = predictions(c, batch);
      const auto expected = statistics(y_true, y_pred), got = traced(y_true, y_pred);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(numbers(got[i]), numbers(expected[i]));
    }
  }
}

TEST(UnknownBatches, SampleWeightsMayHaveTheirOwnBatchSize) {
  const losses::Loss loss = losses::MeanSquaredError();
  const metrics::Metric metric = metrics::MeanAbsoluteError();
  for (const Shape& weights : {Shape{-1}, Shape{-1, 1}}) {
    const auto both = [&](const Tensor& y_true, const Tensor& y_pred, const Tensor& weight) {
      return std::pair(loss(y_true, y_pred, weight),
                       metric.base().statistics(y_true, y_pred, weight).front());
    };
    const auto traced = function(
        both, {.input_signature = {{{-1, 3}, float32}, {{-1, 3}, float32}, {weights, float32}}});
    for (std::int64_t batch : {4, 1}) {
      Shape shape = weights;
      shape.set(0, batch);
      const Tensor y_true = random::normal({batch, 3}), y_pred = random::normal({batch, 3}),
                   weight = random::uniform(shape);
      const auto expected = both(y_true, y_pred, weight), got = traced(y_true, y_pred, weight);
      EXPECT_EQ(numbers(got.first), numbers(expected.first));
      EXPECT_EQ(numbers(got.second), numbers(expected.second));
    }
  }
}

// One weight per example, or one per value: the size of the weights' second axis decides, in the
// run.
TEST(UnknownBatches, TheRunDecidesWhatSampleWeightsAreOf) {
  const losses::Loss loss = losses::MeanSquaredError();
  const metrics::Metric metric = metrics::MeanAbsoluteError();
  const auto both = [&](const Tensor& y_true, const Tensor& y_pred, const Tensor& weight) {
    return std::pair(loss(y_true, y_pred, weight),
                     metric.base().statistics(y_true, y_pred, weight).back());
  };
  const InputSpec sequences = {{-1, -1, 3}, float32}, vectors = {{-1, 3}, float32},
                  weights = {{-1, -1}, float32};
  const auto of_sequences = function(both, {.input_signature = {sequences, sequences, weights}});
  for (const Shape& shape : {Shape{4, 1}, Shape{4, 5}}) {
    const Tensor y_true = random::normal({4, 5, 3}), y_pred = random::normal({4, 5, 3}),
                 weight = random::uniform(shape);
    const auto expected = both(y_true, y_pred, weight), got = of_sequences(y_true, y_pred, weight);
    EXPECT_EQ(numbers(got.first), numbers(expected.first));
    EXPECT_EQ(numbers(got.second), numbers(expected.second));
  }
  const auto of_vectors = function(both, {.input_signature = {vectors, vectors, weights}});
  const Tensor y = random::normal({4, 3}), weight = random::uniform({4, 1});
  EXPECT_EQ(numbers(of_vectors(y, y * 2, weight).first), numbers(both(y, y * 2, weight).first));
  EXPECT_THROW(of_vectors(y, y, ones({4, 3})), InvalidArgumentError);
}

// Accuracy is binary for one output, and categorical for several.
TEST(UnknownBatches, TheRunDecidesWhichAccuracyItIs) {
  const metrics::Metric metric = metrics::from_name("accuracy");
  const auto statistics = [&](const Tensor& y_true, const Tensor& y_pred) {
    return metric.base().statistics(y_true, y_pred, {});
  };
  const InputSpec outputs = {{-1, -1}, float32};
  const auto traced = function(statistics, {.input_signature = {outputs, outputs}});
  for (const std::int64_t classes : {1, 4}) {
    const Tensor y_pred = random::uniform({8, classes});
    const Tensor y_true = cast(greater(random::uniform({8, classes}), 0.5), float32);
    const auto expected = statistics(y_true, y_pred), got = traced(y_true, y_pred);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(numbers(got[i]), numbers(expected[i]));
  }
  const InputSpec labels = {{-1}, int32};
  const auto sparse = function(statistics, {.input_signature = {labels, outputs}});
  expect_parts(error_of<InvalidArgumentError>([&] {
                 sparse(zeros({2}, int32), ones({2, 3}));
               }),
               {"[accuracy]", "axis 1 of 'args_1'", "which accuracy it is"});
}

TEST(UnknownBatches, EachPlaceholderMayHaveItsOwnBatchSize) {
  for (const Case& c : kLosses) {
    SCOPED_TRACE(c.name);
    const losses::Loss loss = losses::from_name(c.name);
    Graph graph;
    {
      const GraphScope building(graph);
      const Tensor y_true = placeholder(c.labels, batched(c.y_true, -1), "y_true");
      const Tensor y_pred = placeholder(float32, batched(c.y_pred, -1), "y_pred");
      const Tensor value = loss(y_true, y_pred);
      identity(value);
      const Tensor slope = gradients(value, std::vector<Tensor>{y_pred}).front();
      reduce_sum(value, {.name = "value"});
      reduce_sum(slope, {.name = "slope"});
    }
    const Tensor y_true = targets(c, 5), y_pred = predictions(c, 5);
    const auto got =
        Session(graph).run({{"y_true:0", y_true}, {"y_pred:0", y_pred}}, {"value:0", "slope:0"});
    EXPECT_EQ(numbers(got[0]), numbers(loss(y_true, y_pred)));
  }
}

// Different batch sizes are an error, as in eager calls, also if they are known only when the
// function runs.
TEST(UnknownBatches, ThatDifferAreRefusedWhenTheFunctionRuns) {
  const auto mse = function(
      [](const Tensor& y_true, const Tensor& y_pred) { return losses::mse(y_true, y_pred); },
      {.input_signature = {{{-1, 3}, float32}, {{-1, 3}, float32}}});
  EXPECT_EQ(mse(ones({2, 3}), ones({2, 3})).shape(), Shape({2}));
  expect_parts(error_of<InvalidArgumentError>([&] {
                 mse(ones({1, 3}), ones({5, 3}));
               }),
               {"expected", "(5, 3)", "(1, 3)"});
}

TEST(UnknownBatches, TheNumberOfClassesMayBeUnknown) {
  const auto smoothed = [](const Tensor& y_true, const Tensor& y_pred) {
    return losses::categorical_crossentropy(y_true, y_pred, {.label_smoothing = 0.3});
  };
  const auto traced =
      function(smoothed, {.input_signature = {{{-1, -1}, float32}, {{-1, -1}, float32}}});
  const Tensor y_true = one_hot(constant({0, 3}), 4), y_pred = random::uniform({2, 4}, 0.1, 0.9);
  EXPECT_EQ(traced(y_true, y_pred).shape(), Shape({2}));
  const auto expected = numbers(smoothed(y_true, y_pred)), got = numbers(traced(y_true, y_pred));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]);
}

}  // namespace
}  // namespace tandem::unknown_sizes_test
