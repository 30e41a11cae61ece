// Losses and metrics of classes that derive from Tandem's, as users write them.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/tensors.h"
#include "tandem/autodiff.h"
#include "tandem/config.h"
#include "tandem/distribute.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::own_classes_test {
namespace {

using losses::Loss;
using metrics::Metric;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

// --- losses ---

Tensor error_of_example(const Tensor& y_true, const Tensor& y_pred) {
  return reduce_mean(square(y_true - y_pred), {.axis = Dims{-1}});
}

class WeightedMse : public Loss {
 public:
  explicit WeightedMse(double weight) : weight_(weight) {}
  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    return error_of_example(y_true, y_pred) * weight_;
  }

 private:
  double weight_;
};

// Has a copy constructor and a function that is const.
class Copied : public Loss {
 public:
  Copied() : Loss("copied", losses::Reduction::kSum) {}
  Copied(const Copied& other) : Loss(other) {}
  Tensor call(const Tensor& y_true, const Tensor& y_pred) const override {
    return error_of_example(y_true, y_pred);
  }
};

class Halved : public losses::MeanSquaredError {
 public:
  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    return losses::MeanSquaredError::call(y_true, y_pred) * 0.5;
  }
};

struct Data {
  Tensor y_true = random_tensor({4, 3}, 1), y_pred = random_tensor({4, 3}, 2);
  std::vector<double> each = values_of(losses::mse(y_true, y_pred));
  double mean = (each[0] + each[1] + each[2] + each[3]) / 4.0;
};

TEST(OwnLosses, AreCalledDirectlyAndByValue) {
  const Data data;
  const WeightedMse own(2.0);
  EXPECT_NEAR(own(data.y_true, data.y_pred).item(), 2.0 * data.mean, 1e-12);
  const Loss held = own, moved = WeightedMse(3.0);
  Loss assigned;
  assigned = own;
  const std::vector<Loss> several = {held, "mse", WeightedMse(4.0)};
  EXPECT_NEAR(held(data.y_true, data.y_pred).item(), 2.0 * data.mean, 1e-12);
  EXPECT_NEAR(moved(data.y_true, data.y_pred).item(), 3.0 * data.mean, 1e-12);
  EXPECT_NEAR(assigned(data.y_true, data.y_pred).item(), 2.0 * data.mean, 1e-12);
  EXPECT_NEAR(several[0](data.y_true, data.y_pred).item(), 2.0 * data.mean, 1e-12);
  EXPECT_NEAR(several[1](data.y_true, data.y_pred).item(), data.mean, 1e-12);
  EXPECT_NEAR(several[2](data.y_true, data.y_pred).item(), 4.0 * data.mean, 1e-12);
  const Loss shared = std::make_shared<WeightedMse>(5.0);
  EXPECT_NEAR(shared(data.y_true, data.y_pred).item(), 5.0 * data.mean, 1e-12);
  expect_tensor(held.per_example(data.y_true, data.y_pred), float64, {4},
                {2.0 * data.each[0], 2.0 * data.each[1], 2.0 * data.each[2], 2.0 * data.each[3]},
                1e-12);
}

TEST(OwnLosses, KeepTheirNameReductionAndCopyConstructor) {
  const Data data;
  const Copied own;
  const Loss held = own, again = held;
  EXPECT_EQ(again.name(), "copied");
  EXPECT_EQ(again.reduction(), losses::Reduction::kSum);
  EXPECT_NEAR(again(data.y_true, data.y_pred).item(), 4.0 * data.mean, 1e-12);
  const Copied copy(own);
  EXPECT_NEAR(copy(data.y_true, data.y_pred).item(), 4.0 * data.mean, 1e-12);
}

TEST(OwnLosses, MayDeriveFromTandems) {
  const Data data;
  const Loss held = Halved();
  EXPECT_NEAR(held(data.y_true, data.y_pred).item(), 0.5 * data.mean, 1e-12);
}

TEST(OwnLosses, MayBeFunctions) {
  const Data data;
  const Loss function = error_of_example;
  const Loss lambda = [](const Tensor& y_true, const Tensor& y_pred) {
    return error_of_example(y_true, y_pred) * 3.0;
  };
  const Loss with_options = losses::binary_crossentropy;
  EXPECT_NEAR(function(data.y_true, data.y_pred).item(), data.mean, 1e-12);
  const Tensor p = random_tensor({4, 1}, 3, 0.1, 0.9), labels = constant({{1}, {0}, {0}, {1}});
  EXPECT_EQ(with_options(labels, p).item(), losses::BinaryCrossentropy()(labels, p).item());
  EXPECT_NEAR(lambda(data.y_true, data.y_pred).item(), 3.0 * data.mean, 1e-12);
}

TEST(OwnLosses, MayBeScalars) {
  const Data data;
  const auto scalar = [](const Tensor& y_true, const Tensor& y_pred) {
    return reduce_mean(square(y_true - y_pred));
  };
  const Loss mean = scalar;
  EXPECT_NEAR(mean(data.y_true, data.y_pred).item(), data.mean, 1e-12);
  expect_tensor(mean.per_example(data.y_true, data.y_pred), float64, {4},
                std::vector<double>(4, data.mean), 1e-12);
  const Loss sum("sum", scalar, losses::Reduction::kSum);
  EXPECT_NEAR(sum(data.y_true, data.y_pred).item(), data.mean, 1e-12);
}

TEST(OwnLosses, SwappedArgumentsAreNamed) {
  const Tensor logits = random_tensor({4, 3}, 1), labels = constant({2, 0, 1, 1});
  expect_error<InvalidArgumentError>(
      [&] { losses::SparseCategoricalCrossentropy()(logits, labels); },
      "the order is (y_true, y_pred)");
}

Tensor inputs() { return random_tensor({22, 4}, 3, -1.0, 1.0, float32); }
Tensor targets() {
  return cast(greater(reduce_sum(inputs(), {.axis = {1}, .keepdims = true}), 0.0), float32);
}
data::Dataset batches() {
  return data::Dataset::from_tensor_slices({inputs(), targets()}).batch(8);
}

Sequential make_model() {
  random::set_seed(4);
  return Sequential({layers::Dense(1, {.activation = "sigmoid", .input_shape = {4}})});
}

History trained(const Loss& loss) {
  Sequential model = make_model();
  model.compile({.optimizer = optimizers::SGD(0.1), .loss = loss});
  return model.fit(batches(), {.epochs = 2, .verbose = 0});
}

TEST(OwnLosses, TrainAsTandemsDo) {
  const std::vector<double> expected = trained("mse").at("loss");
  for (const Loss& loss : {Loss(WeightedMse(1.0)), Loss(error_of_example)}) {
    const std::vector<double> losses = trained(loss).at("loss");
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6);
  }
  // A scalar is the mean of its batch.
  const std::vector<double> scalar = trained([](const Tensor& y_true, const Tensor& y_pred) {
                                       return reduce_mean(square(y_true - y_pred));
                                     }).at("loss");
  EXPECT_NEAR(scalar[0], expected[0], 1e-6);
}

TEST(OwnLosses, UnknownNamesAreRefusedByCompile) {
  Sequential model = make_model();
  expect_error<InvalidArgumentError>([&] { model.compile({.loss = "msee"}); }, "got 'msee'");
  expect_error<InvalidArgumentError>(
      [&] { model.compile({.loss = "mse", .metrics = {"acuracy"}}); }, "got 'acuracy'");
}

// --- metrics ---

class TruePositives : public Metric {
 public:
  explicit TruePositives(std::string name = "true_positives") : Metric(name) {
    count_ = add_weight({.name = "count", .initializer = "zeros"});
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& = {}) override {
    count_.assign_add(reduce_sum(y_true * cast(greater(y_pred, 0.5), float32)));
  }
  Tensor result() override { return count_; }

 private:
  Variable count_;
};

// Consists of other metrics.
class F1 : public Metric {
 public:
  F1() : Metric("f1") {}
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& = {}) override {
    precision_.update_state(y_true, y_pred);
    recall_.update_state(y_true, y_pred);
  }
  Tensor result() const override {
    const double p = precision_.result(), r = recall_.result();
    return constant(p + r > 0.0 ? 2.0 * p * r / (p + r) : 0.0);
  }
  void reset_state() override {
    precision_.reset_state();
    recall_.reset_state();
  }

 private:
  metrics::Precision precision_;
  metrics::Recall recall_;
};

class Stateless : public Metric {
 public:
  Stateless() : Metric("stateless") {}
  void update_state(const Tensor&, const Tensor&, const Tensor& = {}) override {}
  Tensor result() override { return constant(1.0); }
};

// Overrides the form without weights.
class Count : public Metric {
 public:
  Count() : Metric("count") { count_ = add_weight({.name = "count"}); }
  void update_state(const Tensor& y_true, const Tensor&) override {
    count_.assign_add(reduce_sum(ones_like(y_true)));
  }
  Tensor result() override { return count_; }

 private:
  Variable count_;
};

class Nothing : public Metric {
 public:
  Nothing() : Metric("nothing") {}
};

struct Outcomes {
  Tensor y_true = constant({{1.0f}, {0.0f}, {1.0f}, {1.0f}});
  Tensor y_pred = constant({{0.9f}, {0.8f}, {0.2f}, {0.7f}});
};

TEST(OwnMetrics, AreUsedDirectly) {
  const Outcomes data;
  TruePositives metric;
  metric.update_state(data.y_true, data.y_pred);
  metric.update_state(data.y_true, data.y_pred);
  EXPECT_EQ(metric.result().item(), 4.0);
  EXPECT_EQ(metric(data.y_true, data.y_pred), 6.0);
  metric.reset_state();
  EXPECT_EQ(metric.result().item(), 0.0);
  EXPECT_EQ(metric.name(), "true_positives");
}

TEST(OwnMetrics, AreHeldByValueAndByPointer) {
  const Outcomes data;
  const TruePositives object;
  for (Metric metric : {Metric(object), Metric(std::make_shared<TruePositives>("other")),
                        Metric(std::shared_ptr<Metric>(std::make_shared<TruePositives>()))}) {
    metric.update_state(data.y_true, data.y_pred);
    metric.update(data.y_true, data.y_pred);
    EXPECT_EQ(metric.result(), 4.0) << metric.name();
    metric.reset_state();
    EXPECT_EQ(metric.result(), 0.0) << metric.name();
  }
  // The object's own variables have not changed.
  EXPECT_EQ(const_cast<TruePositives&>(object).result().item(), 0.0);
}

TEST(OwnMetrics, MayTakeNoWeights) {
  const Outcomes data;
  Count own;
  own.update_state(data.y_true, data.y_pred);
  Metric& base = own;
  base.update_state(data.y_true, data.y_pred);
  base.update_state(data.y_true, data.y_pred, Tensor());
  EXPECT_EQ(own.result().item(), 12.0);
  Sequential model = make_model();
  model.compile({.loss = "mse", .metrics = {Count()}});
  EXPECT_EQ(model.evaluate(zeros({7, 4}), zeros({7, 1}), {.batch_size = 4}).at("count"), 7.0);
  Metric held = Count();
  const char* const kMessage = "[metric 'count'] expected no sample weights";
  expect_error<InvalidArgumentError>(
      [&] { held.update_state(data.y_true, data.y_pred, ones({4})); }, kMessage);
  expect_error<InvalidArgumentError>(
      [&] { base.update_state(data.y_true, data.y_pred, ones({4})); }, kMessage);
  Nothing nothing;
  EXPECT_THROW(nothing.update_state(data.y_true, data.y_pred), InvalidArgumentError);
  EXPECT_THROW(static_cast<Metric&>(nothing).update_state(data.y_true, data.y_pred, Tensor()),
               InvalidArgumentError);
}

TEST(Metrics, ResultIsANumberAndHasItem) {
  const Outcomes data;
  metrics::Mean mean;
  mean.update_state(data.y_pred);
  const double value = mean.result();
  EXPECT_NEAR(value, 0.65, 1e-6);
  EXPECT_EQ(mean.result().item<float>(), static_cast<float>(value));
  EXPECT_TRUE(mean.result() > 0.6 && mean.result() * 2 < 1.4);
  std::ostringstream text;
  text << mean.result();
  EXPECT_EQ(text.str(), "0.65");
}

TEST(OwnMetrics, MayConsistOfOthers) {
  const Outcomes data;
  F1 own;
  own.update_state(data.y_true, data.y_pred);
  EXPECT_NEAR(own.result().item(), 2.0 / 3.0, 1e-6);
  Metric held = F1();
  held.update(data.y_true, data.y_pred);
  held.update(data.y_true, data.y_pred);
  EXPECT_NEAR(held.result(), 2.0 / 3.0, 1e-6);
}

struct Results {
  std::map<std::string, double> evaluated;
  History history;
};

Results with_metrics(const distribute::Strategy& strategy, bool eagerly) {
  const auto scope = strategy.scope();
  Sequential model = make_model();
  model.compile({.optimizer = optimizers::SGD(0.5),
                 .loss = "mse",
                 .metrics = {metrics::Precision(), metrics::Recall(), TruePositives(), F1(),
                             std::make_shared<TruePositives>("shared")},
                 .run_eagerly = eagerly});
  Results results;
  results.history = model.fit(batches(), {.epochs = 3, .verbose = 0});
  results.evaluated = model.evaluate(batches());
  return results;
}

TEST(OwnMetrics, SumOverBatchesReplicasAndPrograms) {
  config::set_logical_cpus(3);
  const distribute::Strategy strategies[] = {
      distribute::DefaultStrategy(),
      distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1", "/cpu:2"}})};
  const double positives = reduce_sum(targets()).item();
  for (const auto& strategy : strategies)
    for (bool eagerly : {false, true}) {
      const Results results = with_metrics(strategy, eagerly);
      const auto& [evaluated, history] = results;
      const double p = evaluated.at("precision"), r = evaluated.at("recall");
      EXPECT_NEAR(evaluated.at("true_positives"), r * positives, 1e-4);
      EXPECT_NEAR(evaluated.at("shared"), r * positives, 1e-4);
      EXPECT_NEAR(evaluated.at("f1"), 2.0 * p * r / (p + r), 1e-6);
      for (std::size_t epoch = 0; epoch < 3; ++epoch)
        EXPECT_NEAR(history.at("true_positives")[epoch], history.at("recall")[epoch] * positives,
                    1e-4);
    }
}

TEST(OwnMetrics, WithoutStateAreRefused) {
  const Outcomes data;
  Metric metric = Stateless();
  expect_error<FailedPreconditionError>([&] { metric.update(data.y_true, data.y_pred); },
                                        "[metric 'stateless']");
}

TEST(Metrics, MeanAndSumTakeValues) {
  metrics::Mean mean("loss");
  metrics::Sum sum;
  for (const Tensor& values : {constant({1.0, 2.0}), constant({6.0})}) {
    mean.update_state(values);
    sum.update_state(values);
  }
  EXPECT_NEAR(mean.result(), 3.0, 1e-12);
  EXPECT_NEAR(sum.result(), 9.0, 1e-12);
  EXPECT_NEAR(mean(constant(7.0)), 4.0, 1e-12);
  mean.update_state(9.0);
  EXPECT_NEAR(mean.result(), 5.0, 1e-12);
  mean.reset_states();
  mean.update_state(constant({1.0, 5.0}), constant({3.0, 1.0}));
  EXPECT_NEAR(mean.result(), 2.0, 1e-12);
  EXPECT_EQ(mean.name(), "loss");
}

}  // namespace
}  // namespace tandem::own_classes_test
