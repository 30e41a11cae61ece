#include "tandem/metrics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <thread>

#include "support/gpus.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/array.h"
#include "tandem/config.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem::metrics_test {
namespace {

using metrics::Metric;
using testing::expect_error;
using testing::random_tensor;
using testing::random_values;
using testing::values_of;

struct Data {
  Tensor y_true, y_pred, weights;
};

constexpr std::size_t kExamples = 37;
constexpr std::size_t kClasses = 6;

Data classes() {
  std::vector<std::int64_t> labels;
  for (double v : random_values(kExamples, 1, 0.0, kClasses))
    labels.push_back(static_cast<std::int64_t>(v));
  return {constant(labels), random_tensor({kExamples, kClasses}, 2, 0.0, 1.0, float32),
          random_tensor({kExamples}, 3, 0.0, 2.0, float32)};
}

Data binary() {
  std::vector<int> labels;
  for (double v : random_values(kExamples, 4, 0.0, 1.0)) labels.push_back(v > 0.6);
  return {constant(labels), random_tensor({kExamples, 1}, 5, 0.0, 1.0, float32),
          random_tensor({kExamples}, 6, 0.0, 2.0, float32)};
}

double updated(Metric metric, const Data& data, bool weighted = false) {
  metric.update(data.y_true, data.y_pred, weighted ? data.weights : Tensor());
  return metric.result();
}

// The mean over the examples of hit(i), weighted or not.
template <class F>
double mean_of(const Data& data, bool weighted, const F& hit) {
  const auto weights = values_of(data.weights);
  double sum = 0.0, count = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = weighted ? weights[i] : 1.0;
    sum += weight * hit(i);
    count += weight;
  }
  return sum / count;
}

std::size_t rank_of_label(const Data& data, std::size_t example) {
  const auto scores = values_of(data.y_pred);
  const auto label = static_cast<std::size_t>(values_of(data.y_true)[example]);
  std::size_t above = 0;
  for (std::size_t c = 0; c < kClasses; ++c)
    above += scores[example * kClasses + c] > scores[example * kClasses + label];
  return above;
}

TEST(Metrics, AccuraciesCountHits) {
  const Data data = classes();
  for (bool weighted : {false, true}) {
    const double first =
        mean_of(data, weighted, [&](auto i) { return rank_of_label(data, i) == 0; });
    EXPECT_NEAR(updated(metrics::SparseCategoricalAccuracy(), data, weighted), first, 1e-6);
    EXPECT_NEAR(updated(metrics::Accuracy(), data, weighted), first, 1e-6);
    EXPECT_NEAR(updated(metrics::SparseTopKCategoricalAccuracy(3), data, weighted),
                mean_of(data, weighted, [&](auto i) { return rank_of_label(data, i) < 3; }), 1e-6);
    const Data dense{one_hot(data.y_true, kClasses), data.y_pred, data.weights};
    EXPECT_NEAR(updated(metrics::CategoricalAccuracy(), dense, weighted), first, 1e-6);
    EXPECT_EQ(updated(metrics::TopKCategoricalAccuracy({.k = 3}), dense, weighted),
              updated(metrics::SparseTopKCategoricalAccuracy(3), data, weighted));
    EXPECT_NEAR(updated(metrics::Accuracy(), dense, weighted), first, 1e-6);
  }
}

TEST(Metrics, BinaryMetricsCountOutcomes) {
  const Data data = binary();
  const auto t = values_of(data.y_true), p = values_of(data.y_pred), w = values_of(data.weights);
  for (bool weighted : {false, true}) {
    double hits = 0, all = 0, both = 0, predicted = 0, actual = 0;
    for (std::size_t i = 0; i < t.size(); ++i) {
      const double weight = weighted ? w[i] : 1.0;
      const bool positive = p[i] > 0.3;
      hits += weight * (positive == (t[i] == 1.0));
      all += weight;
      both += weight * (positive && t[i] == 1.0);
      predicted += weight * positive;
      actual += weight * (t[i] == 1.0);
    }
    EXPECT_NEAR(updated(metrics::BinaryAccuracy(0.3), data, weighted), hits / all, 1e-6);
    EXPECT_NEAR(updated(metrics::Precision(0.3), data, weighted), both / predicted, 1e-6);
    EXPECT_NEAR(updated(metrics::Recall(0.3), data, weighted), both / actual, 1e-6);
  }
  EXPECT_NEAR(updated(metrics::Accuracy(), data), updated(metrics::BinaryAccuracy(), data), 0.0);
}

TEST(Metrics, ErrorMetricsAreMeans) {
  const Data data{random_tensor({5, 3}, 1, -1, 1, float32),
                  random_tensor({5, 3}, 2, -1, 1, float32), random_tensor({5}, 3, 0, 2, float32)};
  const auto t = values_of(data.y_true), p = values_of(data.y_pred);
  for (bool weighted : {false, true}) {
    const auto mean = [&](const auto& f) {
      return mean_of(data, weighted, [&](auto i) {
        return (f(t[3 * i] - p[3 * i]) + f(t[3 * i + 1] - p[3 * i + 1]) +
                f(t[3 * i + 2] - p[3 * i + 2])) /
               3.0;
      });
    };
    EXPECT_NEAR(updated(metrics::MeanSquaredError(), data, weighted),
                mean([](double e) { return e * e; }), 1e-6);
    EXPECT_NEAR(updated(metrics::MeanAbsoluteError(), data, weighted),
                mean([](double e) { return std::abs(e); }), 1e-6);
  }
}

// Targets are not rounded to the predictions' dtype: 0.7001 is 0.69922 in bfloat16.
TEST(Metrics, ComputeInFloat32For16BitPredictions) {
  const Tensor y_true = full({4, 1}, 0.7001);
  for (DType dtype : {bfloat16, float16}) {
    metrics::Metric error = metrics::MeanAbsoluteError();
    error.update(y_true, full({4, 1}, 0.5, {.dtype = dtype}));
    EXPECT_NEAR(error.result(), 0.2001, 1e-6);
  }
}

// Keras's definition of the AUC, computed threshold by threshold.
double auc_of(const Data& data, bool weighted, int count) {
  const auto t = values_of(data.y_true), p = values_of(data.y_pred), w = values_of(data.weights);
  std::vector<double> true_rate, false_rate;
  for (int k = 0; k < count; ++k) {
    const double threshold = k == 0           ? -1e-7
                             : k == count - 1 ? 1.0 + 1e-7
                                              : static_cast<double>(k) / (count - 1);
    double tp = 0, fp = 0, positives = 0, negatives = 0;
    for (std::size_t i = 0; i < t.size(); ++i) {
      const double weight = weighted ? w[i] : 1.0;
      (t[i] == 1.0 ? positives : negatives) += weight;
      if (p[i] > threshold) (t[i] == 1.0 ? tp : fp) += weight;
    }
    true_rate.push_back(tp / positives);
    false_rate.push_back(fp / negatives);
  }
  double area = 0.0;
  for (std::size_t k = 1; k < true_rate.size(); ++k)
    area += (false_rate[k - 1] - false_rate[k]) * (true_rate[k - 1] + true_rate[k]) / 2.0;
  return area;
}

TEST(Metrics, AucIsTheAreaUnderTheCurve) {
  const Data data = binary();
  for (bool weighted : {false, true})
    for (int thresholds : {3, 11, 200})
      EXPECT_NEAR(updated(metrics::AUC(thresholds), data, weighted),
                  auc_of(data, weighted, thresholds), 1e-6)
          << thresholds;
  EXPECT_EQ(updated(metrics::AUC(), {constant({0, 1}), constant({0.1, 0.9}), {}}), 1.0);
  EXPECT_EQ(updated(metrics::AUC(), {constant({1, 0}), constant({0.0, 1.0}), {}}), 0.0);
  EXPECT_EQ(
      updated(metrics::AUC({.from_logits = true}), {constant({0, 1}), constant({-3.0, -2.0}), {}}),
      1.0);
  EXPECT_EQ(updated(metrics::AUC(), {constant({1, 1}), constant({0.1, 0.9}), {}}),
            0.0);  // no negatives: undefined
}

std::vector<std::pair<Metric, Data>> every_metric() {
  std::vector<std::pair<Metric, Data>> all;
  for (const char* name :
       {"accuracy", "sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy"})
    all.emplace_back(name, classes());
  for (const char* name :
       {"accuracy", "binary_accuracy", "precision", "recall", "auc", "mse", "mae"})
    all.emplace_back(name, binary());
  return all;
}

TEST(Metrics, AnySplitOfTheExamplesGivesTheSame) {
  for (auto& [metric, data] : every_metric()) {
    const double whole = updated(metric, data, true);
    ASSERT_TRUE(std::isfinite(whole)) << metric.name();
    for (std::int64_t size : {1, 5, 36}) {
      metric.reset();
      EXPECT_EQ(metric.result(), 0.0);
      for (std::int64_t begin = 0; begin < static_cast<std::int64_t>(kExamples); begin += size) {
        const std::int64_t end = std::min(begin + size, static_cast<std::int64_t>(kExamples));
        const auto part = [&](const Tensor& x) { return slice_rows(x, begin, end); };
        metric.update(part(data.y_true), part(data.y_pred), part(data.weights));
      }
      EXPECT_NEAR(metric.result(), whole, 1e-7) << metric.name() << " in batches of " << size;
    }
  }
}

TEST(Metrics, AWeightOfZeroMasksAnyValue) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Metric mse = metrics::MeanSquaredError();
  mse.update(constant({{1.0}, {0.0}}), constant(std::vector<float>{3.0f, nan}, {.shape = {2, 1}}),
             constant({0.5, 0.0}));
  EXPECT_NEAR(mse.result(), 4.0, 1e-7);
}

TEST(Metrics, TopKTreatsTiesAndNonFiniteScoresAsTensorFlowDoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto hit = [](std::int64_t k, std::int64_t label, const std::vector<float>& scores) {
    Metric metric = metrics::SparseTopKCategoricalAccuracy(k);
    metric.update(constant({label}),
                  constant(scores, {.shape = {1, static_cast<std::int64_t>(scores.size())}}));
    return metric.result();
  };
  EXPECT_EQ(hit(1, 2, {0.5f, 0.1f, 0.5f}), 1.0);
  EXPECT_EQ(hit(1, 1, {0.5f, 0.1f, 0.5f}), 0.0);
  EXPECT_EQ(hit(2, 1, {0.5f, nan, 0.5f}), 0.0);
  EXPECT_EQ(hit(2, 7, {0.5f, 0.1f, 0.5f}), 0.0);
}

TEST(Metrics, StatisticsFromSeveralDevicesAddUp) {
  config::set_logical_cpus(2);
  Metric metric = metrics::MeanAbsoluteError();
  for (const char* device : {"/cpu:0", "/cpu:1", "/cpu:1"})
    metric.update(constant({{0.0}}).to(device), constant({{3.0}}).to(device));
  metric.update(constant({{0.0}}), constant({{1.0}}));
  EXPECT_NEAR(metric.result(), 2.5, 1e-12);
}

TEST(Metrics, ThreadsMayShareOne) {
  Metric metric = metrics::BinaryAccuracy();
  const Tensor y_true = constant({1, 0, 1, 1}), y_pred = constant({0.9, 0.8, 0.7, 0.1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&metric, y_true, y_pred] {
      Metric mine = metric;
      for (int i = 0; i < 50; ++i) mine.update(y_true, y_pred);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metric.result(), 0.5);
}

TEST(Metrics, UpdatesDoNotWaitForTheDevice) {
  testing::use_gpus(1, 64);
  Metric metric = metrics::SparseCategoricalAccuracy();
  const Tensor y_true = constant({1, 1}).to("/gpu:0"),
               y_pred = constant({{0.1, 0.9}, {0.9, 0.1}}).to("/gpu:0");
  metric.update(y_true, y_pred);  // loads the kernels, for which CUDA may wait for the device
  EXPECT_EQ(metric.result(), 0.5);
  std::promise<void> updated;
  std::promise<bool> in_time;
  impl_of(y_pred).device().stream().enqueue([&] {
    in_time.set_value(updated.get_future().wait_for(testing::kPatience) ==
                      std::future_status::ready);
  });
  metric.update(y_true, y_pred);
  metric.update(y_true, y_pred);
  updated.set_value();
  EXPECT_TRUE(in_time.get_future().get());
  EXPECT_EQ(metric.result(), 0.5);
}

TEST(Metrics, AreFoundByNameAndKeepIt) {
  EXPECT_EQ(Metric("mse").name(), "mse");
  EXPECT_EQ(Metric("acc").name(), "acc");
  EXPECT_EQ(metrics::AUC(10, "roc").name(), "roc");
  expect_error<InvalidArgumentError>([] { metrics::from_name("acuracy"); },
                                     "[metrics] expected one of: accuracy, acc");
  expect_error<InvalidArgumentError>(
      [] { Metric("acuracy").update(constant({1.0}), constant({1.0})); }, "got 'acuracy'");
  expect_error<InvalidArgumentError>([] { metrics::AUC(1); },
                                     "[auc] expected two or more thresholds, got 1");
  expect_error<FailedPreconditionError>([] { Metric().name(); }, "[Metric]");
  expect_error<InvalidArgumentError>(
      [] {
        Metric("accuracy").update(constant({1, 2, 3}), constant({{0.5, 0.5}}));
      },
      "[sparse_categorical_accuracy] expected class indices of shape (1,)");
}

}  // namespace
}  // namespace tandem::metrics_test
