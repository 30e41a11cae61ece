// Models of users with steps of their own: train_step() and test_step().
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/autodiff.h"
#include "tandem/checkpoint.h"
#include "tandem/config.h"
#include "tandem/creation.h"
#include "tandem/distribute.h"
#include "tandem/explain.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::own_step_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::TemporaryDirectory;
using testing::values_of;

Tensor inputs() { return random_tensor({37, 6}, 3, -1.0, 1.0, float32); }
Tensor targets() { return reduce_sum(inputs(), {.axis = {1}, .keepdims = true}); }

constexpr double kRate = 0.1;

// The built-in step, written out.
class Written : public Model {
 public:
  Tensor call(const Tensor& x) override { return out(hidden(x)); }
  StepResults train_step(const Tensor& x, const Tensor& y) override {
    ++steps;
    GradientTape tape;
    const Tensor y_pred = (*this)(x, true);
    const Tensor loss = compute_loss(x, y, y_pred);
    optimizer().apply_gradients(tape.gradient(loss, trainable_variables()), trainable_variables());
    return compute_metrics(x, y, y_pred);
  }
  StepResults test_step(const Tensor& x, const Tensor& y) override {
    const Tensor y_pred = (*this)(x, false);
    compute_loss(x, y, y_pred);
    return compute_metrics(x, y, y_pred);
  }
  layers::Dense hidden{8, {.activation = "tanh", .kernel_regularizer = regularizers::L2(1e-3)}};
  layers::Dense out{1};
  std::atomic<int> steps = 0;  // replicas call concurrently
};
class BuiltIn : public Model {
 public:
  Tensor call(const Tensor& x) override { return out(hidden(x)); }
  layers::Dense hidden{8, {.activation = "tanh", .kernel_regularizer = regularizers::L2(1e-3)}};
  layers::Dense out{1};
};

template <class M>
History train(M& model, const CompileOptions& more = {}) {
  CompileOptions options = more;
  options.optimizer = optimizers::SGD({.learning_rate = kRate, .momentum = 0.9});
  options.loss = "mse";
  options.metrics = {"mae"};
  model.compile(options);
  return model.fit(
      inputs(), targets(),
      {.epochs = 3, .batch_size = 8, .validation_split = 0.25, .verbose = 0, .shuffle = false});
}

void expect_equal_history(const History& actual, const History& expected, double tolerance) {
  ASSERT_EQ(actual.history.size(), expected.history.size());
  for (const auto& [name, values] : expected.history)
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(actual.at(name)[i], values[i], tolerance) << name << ' ' << i;
}

TEST(OwnStep, IsTheBuiltInOneWrittenOut) {
  for (const bool eagerly : {false, true}) {
    random::set_seed(4);
    BuiltIn expected;
    const History expected_history = train(expected, {.run_eagerly = eagerly});
    EXPECT_EQ(expected_history.at("val_mae").size(), 3u);
    random::set_seed(4);
    Written model;
    expect_equal_history(train(model, {.run_eagerly = eagerly}), expected_history, 1e-6);
    // 27 examples in batches of 8 and 3: a trace for each.
    EXPECT_EQ(model.steps, eagerly ? 3 * 4 : 2);
    expect_tensor(model.predict(inputs()), float32, {37, 1}, values_of(expected.predict(inputs())),
                  1e-6);
    const auto result = model.evaluate(inputs(), targets());
    const auto built_in = expected.evaluate(inputs(), targets());
    EXPECT_NEAR(result.at("loss"), built_in.at("loss"), 1e-6);
    EXPECT_NEAR(result.at("mae"), built_in.at("mae"), 1e-6);
    EXPECT_NEAR(model.train_on_batch(inputs(), targets()).at("loss"), built_in.at("loss"), 1e-6);
  }
}

TEST(OwnStep, TrainsUnderStrategiesAsOnOneDevice) {
  config::set_logical_cpus(2);
  random::set_seed(4);
  BuiltIn expected;
  const History expected_history = train(expected);
  const auto trains_equally = [&](const distribute::Strategy& strategy, bool eagerly) {
    random::set_seed(4);
    const auto scope = strategy.scope();
    Written model;
    const History history =
        train(model, {.run_eagerly = eagerly, .steps_per_execution = eagerly ? 1 : 2});
    expect_equal_history(history, expected_history, 1e-5);
    expect_tensor(model.predict(inputs()), float32, {37, 1}, values_of(expected.predict(inputs())),
                  1e-5);
  };
  for (const bool eagerly : {false, true}) {
    trains_equally(distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}}), eagerly);
    trains_equally(distribute::CentralStorageStrategy({"/cpu:0", "/cpu:1"}), eagerly);
    trains_equally(distribute::OneDeviceStrategy("/cpu:1"), eagerly);
  }
}

TEST(OwnStep, GivesTheSameBitsOnAnyNumberOfReplicas) {
  config::set_logical_cpus(2);
  config::set_replica_invariant_parts(4);
  const auto losses = [](const std::vector<std::string>& devices) {
    const distribute::MirroredStrategy strategy({.devices = devices});
    random::set_seed(4);
    const auto scope = strategy.scope();
    Written model;
    return train(model).history;
  };
  EXPECT_EQ(losses({"/cpu:0", "/cpu:1"}), losses({"/cpu:0"}));
}

TEST(OwnStep, ComputesWithMixedPrecision) {
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    random::set_seed(4);
    BuiltIn expected;
    const History expected_history = train(expected, {.dtype = policy});
    random::set_seed(4);
    // minimize() scales the loss, as the built-in step.
    class Minimizing : public Written {
     public:
      StepResults train_step(const Tensor& x, const Tensor& y) override {
        const Tensor y_pred = (*this)(x, true);
        const Tensor loss = compute_loss(x, y, y_pred);
        optimizer().minimize(loss, trainable_variables());
        return compute_metrics(x, y, y_pred);
      }
    } model;
    expect_equal_history(train(model, {.dtype = policy}), expected_history, 1e-3);
  }
}

// A step with metrics and scalars of its own, and without a loss in compile().
class Tracking : public Model {
 public:
  Tensor call(const Tensor& x) override { return out(x); }
  StepResults train_step(const data::Example& batch) override {
    const Tensor y_pred = (*this)(batch[0], true);
    const Tensor error = reduce_mean(square(batch[1] - y_pred), -1);
    const Tensor loss = nn::compute_average_loss(error);
    optimizer().minimize(loss, trainable_variables());
    mse.update_state(error);
    mae.update_state(batch[1], y_pred);
    return {{"error", mse.result()}, {"mae", mae.result()}, {"first", batch[0].mean()}};
  }
  layers::Dense out{1};
  metrics::Mean mse{"mse"};
  metrics::Metric mae = "mae";
};

TEST(OwnStep, ReportsItsMetricsAndTheMeansOfItsScalars) {
  Tracking model;
  model.compile({.optimizer = optimizers::SGD(0.0)});
  const History history =
      model.fit(inputs(), targets(), {.epochs = 2, .batch_size = 8, .verbose = 0});
  ASSERT_EQ(history.history.size(), 3u);
  const Tensor error = targets() - model.predict(inputs());
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_NEAR(history.at("error")[epoch], square(error).mean().item(), 1e-6);
    EXPECT_NEAR(history.at("mae")[epoch], abs(error).mean().item(), 1e-6);
    EXPECT_NEAR(history.at("first")[epoch], inputs().mean().item(), 1e-6);
  }
  // The metrics have the epoch's values.
  EXPECT_EQ(model.mse.result(), history.at("error")[1]);
  EXPECT_EQ(model.mae.result(), history.at("mae")[1]);
  // evaluate() has the built-in step, which needs a loss.
  expect_error<FailedPreconditionError>([&] { model.evaluate(inputs(), targets()); },
                                        "[evaluate] expected a loss in compile(), got none");
}

TEST(OwnStep, IsMonitoredByCallbacksAndResumes) {
  const TemporaryDirectory folder;
  const auto fit = [&](int epochs, std::vector<callbacks::Callback> extra) {
    random::set_seed(2);
    Tracking model;
    model.compile({.optimizer = optimizers::SGD(kRate)});
    extra.push_back(callbacks::EarlyStopping({.monitor = "error", .patience = 50, .mode = "min"}));
    extra.push_back(callbacks::ModelCheckpoint(
        folder.path() / "weights" / "{error:.2f}.safetensors", {.save_weights_only = true}));
    return model.fit(inputs(), targets(),
                     {.epochs = epochs, .batch_size = 8, .verbose = 0, .callbacks = extra});
  };
  const History whole = fit(4, {});
  EXPECT_FALSE(std::filesystem::is_empty(folder.path() / "weights"));
  // Ends within an epoch, and goes on from there.
  int steps = 0;
  const auto interrupted = [&] {
    return fit(4, {callbacks::BackupAndRestore(folder.path() / "backup", {.save_freq = 1}),
                   callbacks::LambdaCallback(
                       {.on_train_batch_end = [&](std::int64_t, const callbacks::Logs&) {
                         if (++steps == 7) throw std::runtime_error("interrupted");
                       }})});
  };
  EXPECT_THROW(interrupted(), std::runtime_error);
  EXPECT_EQ(interrupted().history, whole.history);
  EXPECT_EQ(steps, 4 * 5 + 1);
}

// Inputs alone, and an own loop over two networks: a GAN's step without call().
class Pair : public Model {
 public:
  StepResults train_step(const data::Example& batch) override {
    const Tensor& x = batch[0];
    const Tensor loss = reduce_mean(square(decoder(encoder(x)) - x));
    std::vector<Variable> variables = encoder.trainable_variables();
    for (const Variable& variable : decoder.trainable_variables()) variables.push_back(variable);
    optimizer().minimize(loss, variables);
    return {{"loss", loss}};
  }
  Sequential encoder{layers::Dense(3, {.input_shape = {6}})};
  Sequential decoder{layers::Dense(6, {.input_shape = {3}})};
};

TEST(OwnStep, TakesInputsAloneAndNeedsNoCall) {
  random::set_seed(1);
  Pair model;
  model.compile({.optimizer = optimizers::Adam(0.02)});
  const History history = model.fit(inputs(), {.epochs = 10, .batch_size = 16, .verbose = 0});
  EXPECT_LT(history.at("loss").back(), 0.9 * history.at("loss").front());
  const auto all = data::Dataset::from_tensor_slices({inputs()}).batch(16);
  EXPECT_EQ(model.fit(all, {.verbose = 0}).at("loss").size(), 1u);
}

// Derived from a functional model and from Sequential, and extending the built-in step.
class Extended : public Functional {
 public:
  using Functional::Functional;
  StepResults train_step(const data::Example& batch) override {
    StepResults results = Model::train_step(batch);
    results["examples"] = constant(static_cast<double>(batch[0].dim(0)));
    return results;
  }
};
class InSequence : public Sequential {
 public:
  using Sequential::Sequential;
  StepResults train_step(const Tensor& x, const Tensor& y) override {
    StepResults results = Sequential::train_step(x, y);
    results.erase("mae");
    return results;
  }
};

TEST(OwnStep, ExtendsTheBuiltInOneOfEachKindOfModel) {
  const SymbolicInput input = Input({6});
  Extended extended(input, layers::Dense(1)(input));
  const History history = train(extended);
  EXPECT_EQ(history.history.size(), 5u);  // with val_loss and val_mae
  EXPECT_NEAR(history.at("examples")[0], (3 * 8.0 * 8.0 + 3.0 * 3.0) / 27, 1e-9);
  InSequence in_sequence({layers::Dense(1, {.input_shape = {6}})});
  EXPECT_EQ(train(in_sequence).history.count("mae"), 0u);
  // A handle of another class has the built-in step.
  Model handle = in_sequence;
  EXPECT_EQ(handle.fit(inputs(), targets(), {.verbose = 0}).history.count("mae"), 1u);
  EXPECT_EQ(in_sequence.fit(inputs(), targets(), {.verbose = 0}).history.count("mae"), 0u);
}

TEST(OwnStep, IsExplained) {
  Written model;
  train(model);
  EXPECT_FALSE(explain(model, {inputs(), targets()}).operations.empty());
}

// A step that is one of the wrong ones.
class Wrong : public Written {
 public:
  explicit Wrong(std::function<StepResults(Wrong&, const data::Example&)> step)
      : step_(std::move(step)) {}
  StepResults train_step(const data::Example& batch) override { return step_(*this, batch); }
  metrics::Mean mean{"mean"};

 private:
  std::function<StepResults(Wrong&, const data::Example&)> step_;
};

TEST(OwnStep, RefusesWhatCannotBeReported) {
  const auto fit = [](std::function<StepResults(Wrong&, const data::Example&)> step) {
    return [step] {
      Wrong model(step);
      model.compile({.loss = "mse"});
      model.fit(inputs(), targets(), {.batch_size = 30, .verbose = 0, .shuffle = false});
    };
  };
  expect_error<InvalidArgumentError>(fit([](Wrong&, const data::Example& batch) {
                                       return StepResults{{"x", batch[1]}};
                                     }),
                                     "[fit] expected a scalar or the result() of a metric as 'x' "
                                     "from the step, got shape (30, 1)");
  expect_error<InvalidArgumentError>(fit([](Wrong&, const data::Example&) {
                                       return StepResults{{"x", Tensor()}};
                                     }),
                                     "as 'x' from the step, got an undefined tensor");
  expect_error<FailedPreconditionError>(
      fit([](Wrong& model, const data::Example&) {
        return StepResults{{"m", model.mean.result()}};
      }),
      "[fit] the step returned the result of a metric as 'm', and did not update the metric");
  expect_error<FailedPreconditionError>(
      fit([](Wrong& model, const data::Example& batch) {
        model.mean.update_state(batch[0]);
        return StepResults{{"m", constant(2.0 * model.mean.result())}};
      }),
      "[metrics] the value of result() is not known in train_step()");
  expect_error<InvalidArgumentError>(
      fit([](Wrong&, const data::Example& batch) {
        return StepResults{{batch[0].dim(0) == 30 ? "a" : "b", batch[0].mean()}};
      }),
      "[fit] expected the results of the first step, 'a', got 'b'");
  Written model;
  model.compile({.loss = "mse"});
  expect_error<FailedPreconditionError>([&] { model.Model::train_step({inputs()}); },
                                        "[train_step] expected a call by fit()");
  expect_error<FailedPreconditionError>(
      [&] { model.compute_metrics(inputs(), targets(), targets()); },
      "[compute_metrics] expected a call by fit()");
  EXPECT_NEAR(model.compute_loss(inputs(), targets(), targets() + 2.0).item(), 4.0, 1e-5);
}

}  // namespace
}  // namespace tandem::own_step_test
