#include "tandem/callbacks.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "core/crc32c.h"
#include "support/files.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/checkpoint.h"
#include "tandem/model.h"
#include "train/callbacks/tfrecord_writer.h"

namespace tandem::callbacks_test {
namespace {

using callbacks::Callback;
using callbacks::Logs;
using testing::expect_error;
using testing::read_file;
using testing::TemporaryDirectory;

// A model with one variable. `schedule` is its optimizer's learning rate.
Sequential small_model(double rate = 0.1, std::vector<metrics::Metric> metrics = {}) {
  Sequential model(
      {layers::Dense(1, {.use_bias = false, .kernel_initializer = "zeros", .input_shape = {1}})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = rate}),
                 .loss = "mse",
                 .metrics = std::move(metrics)});
  return model;
}

History fit(Model& model, std::int64_t epochs, std::vector<Callback> callbacks,
            bool validate = false) {
  const auto data = data::Dataset::from_tensor_slices({ones({4, 1}), ones({4, 1})}).batch(2);
  FitOptions options = {.epochs = epochs, .verbose = 0, .callbacks = std::move(callbacks)};
  if (validate) options.validation_data = data;
  return model.fit(data, options);
}

// Replaces an epoch's metrics by the test's own, for a callback under test.
class Replay final : public callbacks::CallbackBase {
 public:
  Replay(Callback callback, std::vector<double> values)
      : callback_(std::move(callback)), values_(std::move(values)) {}
  void on_train_begin(Model& model) override { callback_->on_train_begin(model); }
  void on_train_end(Model& model) override { callback_->on_train_end(model); }
  void on_epoch_begin(Model& model, std::int64_t epoch) override {
    callback_->on_epoch_begin(model, epoch);
  }
  void on_epoch_end(Model& model, std::int64_t epoch, const Logs&) override {
    callback_->on_epoch_end(model, epoch,
                            {{"val_loss", values_.at(static_cast<std::size_t>(epoch))}});
    rates.push_back(model.optimizer().learning_rate());
  }
  std::vector<double> rates;

 private:
  Callback callback_;
  std::vector<double> values_;
};

TEST(Callbacks, AreCalledInOrder) {
  std::vector<std::string> calls;
  const auto recorder = [&](const std::string& name) {
    return callbacks::LambdaCallback({
        .on_epoch_begin =
            [&calls, name](Model&, std::int64_t e) {
              calls.push_back(name + " epoch begin " + std::to_string(e));
            },
        .on_epoch_end =
            [&calls, name](Model&, std::int64_t e, const Logs& logs) {
              calls.push_back(name + " epoch end " + std::to_string(e) +
                              (logs.contains("val_loss") ? " validated" : ""));
            },
        .on_train_begin = [&calls, name](Model&) { calls.push_back(name + " train begin"); },
        .on_train_end = [&calls, name](Model&) { calls.push_back(name + " train end"); },
        .on_train_batch_end =
            [&calls, name](Model&, std::int64_t b, const Logs& logs) {
              calls.push_back(name + " batch " + std::to_string(b) +
                              (logs.contains("loss") ? " loss" : ""));
            },
    });
  };
  Sequential model = small_model();
  fit(model, 1, {recorder("a"), recorder("b")}, true);
  EXPECT_EQ(calls,
            (std::vector<std::string>{"a train begin", "b train begin", "a epoch begin 0",
                                      "b epoch begin 0", "a batch 0 loss", "b batch 0 loss",
                                      "a batch 1 loss", "b batch 1 loss", "a epoch end 0 validated",
                                      "b epoch end 0 validated", "a train end", "b train end"}));
}

TEST(Callbacks, StopTrainingEndsAfterTheStep) {
  Sequential model = small_model();
  const History history = fit(
      model, 5,
      {callbacks::LambdaCallback(
          {.on_train_batch_end = [](Model& m, std::int64_t, const Logs&) { m.stop_training(); }})});
  EXPECT_EQ(model.optimizer().iterations(), 1);
  EXPECT_EQ(history.epoch.size(), 1u);
  fit(model, 1, {});
  EXPECT_EQ(model.optimizer().iterations(), 3) << "the next fit() is not stopped";
}

TEST(EarlyStopping, StopsAfterItsPatience) {
  Sequential model = small_model();
  const auto replay =
      std::make_shared<Replay>(callbacks::EarlyStopping({.min_delta = 0.05, .patience = 2}),
                               std::vector<double>{1.0, 0.5, 0.47, 0.46, 0.1, 0.1});
  EXPECT_EQ(fit(model, 6, {Callback(replay)}).epoch.size(), 4u);
}

TEST(EarlyStopping, MaximizesAccuracies) {
  Sequential model = small_model(0.1, {"accuracy"});
  int epochs = 0;
  auto stopping = callbacks::EarlyStopping({.monitor = "val_accuracy", .patience = 1});
  const auto feed =
      callbacks::LambdaCallback({.on_epoch_end = [&](Model& m, std::int64_t epoch, const Logs&) {
        if (epoch == 0) stopping->on_train_begin(m);
        stopping->on_epoch_end(
            m, epoch, {{"val_accuracy", epoch < 3 ? 0.1 * static_cast<double>(epoch) : 0.0}});
        ++epochs;
      }});
  fit(model, 9, {feed});
  EXPECT_EQ(epochs, 4);
}

TEST(EarlyStopping, TellsWhenItStoppedAndWhatWasBest) {
  Sequential model = small_model();
  const callbacks::EarlyStopping stopping({.patience = 2});
  const std::vector<double> losses = {1.0, 0.5, 0.9, 0.8, 0.7};
  const History history = fit(model, 5, {std::make_shared<Replay>(stopping, losses)});
  EXPECT_EQ(history.epoch.size(), 4u);
  EXPECT_EQ(stopping.stopped_epoch(), 3);
  EXPECT_EQ(stopping.best_epoch(), 1);
  EXPECT_EQ(stopping.best(), 0.5);
}

TEST(EarlyStopping, RestoresTheBestWeights) {
  Sequential model = small_model();
  const auto replay = std::make_shared<Replay>(
      callbacks::EarlyStopping({.patience = 2, .restore_best_weights = true}),
      std::vector<double>{1.0, 0.5, 0.6, 0.7});
  std::vector<float> weights;
  const auto record =
      callbacks::LambdaCallback({.on_epoch_end = [&](Model& m, std::int64_t, const Logs&) {
        weights.push_back(m.variables()[0].value().to_vector<float>()[0]);
      }});
  fit(model, 4, {record, Callback(replay)});
  ASSERT_EQ(weights.size(), 4u);
  EXPECT_NE(weights[1], weights[3]);
  EXPECT_EQ(model.variables()[0].value().to_vector<float>()[0], weights[1]);
}

TEST(EarlyStopping, RestoresTheBestWeightsHoweverTrainingEnds) {
  for (const bool stopped : {false, true}) {
    SCOPED_TRACE(stopped);
    Sequential model = small_model();
    const auto replay = std::make_shared<Replay>(
        callbacks::EarlyStopping({.patience = 9, .restore_best_weights = true}),
        std::vector<double>{1.0, 0.5, 0.6, 0.7});
    std::vector<float> weights;
    const auto record =
        callbacks::LambdaCallback({.on_epoch_end = [&](Model& m, std::int64_t epoch, const Logs&) {
          weights.push_back(m.variables()[0].value().to_vector<float>()[0]);
          if (stopped && epoch == 2) m.stop_training();
        }});
    fit(model, 4, {record, Callback(replay)});
    ASSERT_EQ(weights.size(), stopped ? 3U : 4U);
    EXPECT_EQ(model.variables()[0].value().to_vector<float>()[0], weights[1]);
  }
}

// Counts something: whether more of it is better, its author must say.
class Count final : public metrics::MetricBase {
 public:
  explicit Count(std::optional<bool> larger_is_better) : larger_is_better_(larger_is_better) {}
  std::vector<Tensor> statistics(const Tensor&, const Tensor&, const Tensor&) const override {
    return {ones({})};
  }
  double result(const std::vector<Tensor>&) const override { return 1.0; }
  std::optional<bool> larger_is_better() const override { return larger_is_better_; }

 private:
  std::optional<bool> larger_is_better_;
};

TEST(Monitors, TakeTheDirectionFromTheMetric) {
  // The metric is the same in each epoch but improves by the order of the values here.
  const auto epochs = [](const std::string& name, std::optional<bool> larger,
                         const std::string& mode, const std::vector<double>& values) {
    Sequential model = small_model(0.1, {{name, std::make_shared<Count>(larger)}});
    const Callback stopping =
        callbacks::EarlyStopping({.monitor = "val_" + name, .patience = 1, .mode = mode});
    std::size_t count = 0;
    const auto feed = callbacks::LambdaCallback(
        {.on_epoch_end =
             [&](Model& m, std::int64_t epoch, const Logs&) {
               stopping->on_epoch_end(
                   m, epoch, {{"val_" + name, values.at(static_cast<std::size_t>(epoch))}});
               ++count;
             },
         .on_train_begin = [&](Model& m) { stopping->on_train_begin(m); }});
    fit(model, 4, {feed});
    return count;
  };
  const std::vector<double> rising = {1.0, 2.0, 3.0, 4.0};
  EXPECT_EQ(epochs("iou", true, "auto", rising), 4U);
  EXPECT_EQ(epochs("iou", false, "auto", rising), 2U);
  EXPECT_EQ(epochs("iou", std::nullopt, "max", rising), 4U);
  EXPECT_EQ(epochs("vaccine_error", false, "auto", rising), 2U) << "a name says nothing";
  const std::string expected =
      "cannot tell whether 'val_iou' is better if it is larger: expected a mode of 'max' or 'min', "
      "got 'auto'";
  expect_error<InvalidArgumentError>([&] { epochs("iou", std::nullopt, "auto", rising); },
                                     "[EarlyStopping] " + expected);
  for (const Callback& callback : std::initializer_list<Callback>{
           callbacks::ReduceLROnPlateau({.monitor = "val_iou"}),
           callbacks::ModelCheckpoint("w", {.monitor = "val_iou", .save_best_only = true})}) {
    Sequential model = small_model(0.1, {{"iou", std::make_shared<Count>(std::nullopt)}});
    expect_error<InvalidArgumentError>([&] { fit(model, 1, {callback}); }, expected);
  }
  for (const char* name : {"accuracy", "sparse_categorical_accuracy", "categorical_accuracy",
                           "binary_accuracy", "auc", "precision", "recall"})
    EXPECT_EQ(metrics::from_name(name).base().larger_is_better(), true) << name;
  for (const char* name : {"mse", "mae"})
    EXPECT_EQ(metrics::from_name(name).base().larger_is_better(), false) << name;
}

TEST(EarlyStopping, WithoutItsMetricTrainingContinues) {
  Sequential model = small_model();
  EXPECT_EQ(fit(model, 3, {callbacks::EarlyStopping()}).epoch.size(), 3u);
  expect_error<InvalidArgumentError>(
      [] { callbacks::EarlyStopping({.mode = "least"}); },
      "[EarlyStopping] expected mode 'auto', 'min' or 'max', got 'least'");
}

TEST(LearningRateScheduler, SetsEachEpochsRate) {
  Sequential model = small_model(0.8);
  std::vector<double> rates;
  fit(model, 3,
      {callbacks::LearningRateScheduler(
           [](std::int64_t epoch, double rate) { return epoch == 0 ? rate : rate / 2; }),
       callbacks::LambdaCallback({.on_epoch_end = [&](Model& m, std::int64_t, const Logs&) {
         rates.push_back(m.optimizer().learning_rate());
       }})});
  EXPECT_EQ(rates, (std::vector<double>{0.8, 0.4, 0.2}));
}

TEST(ReduceLROnPlateau, ReducesCoolsDownAndStopsAtTheMinimum) {
  Sequential model = small_model(1.0);
  const auto replay = std::make_shared<Replay>(
      callbacks::ReduceLROnPlateau({.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.3}),
      std::vector<double>{1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0});
  fit(model, 9, {Callback(replay)});
  EXPECT_EQ(replay->rates, (std::vector<double>{1.0, 1.0, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3, 0.3}));
  expect_error<InvalidArgumentError>([] { callbacks::ReduceLROnPlateau({.factor = 1.0}); },
                                     "expected a factor");
}

TEST(ModelCheckpoint, FormatsThePath) {
  const TemporaryDirectory directory;
  Sequential model = small_model();
  fit(model, 2,
      {callbacks::ModelCheckpoint(directory / "w-{epoch:02}-{val_loss:.1f}.safetensors"),
       callbacks::ModelCheckpoint(directory / "last.safetensors")},
      true);
  EXPECT_EQ(directory.count_files(), 3u);
  EXPECT_TRUE(std::filesystem::exists(directory / "w-01-0.4.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(directory / "w-02-0.2.safetensors"));
  EXPECT_EQ(load_safetensors(directory / "last.safetensors")
                .tensors.at("dense/kernel")
                .to_vector<float>(),
            model.variables()[0].value().to_vector<float>());
  expect_error<InvalidArgumentError>(
      [&] { fit(model, 1, {callbacks::ModelCheckpoint(directory / "{nothing}")}); },
      "[ModelCheckpoint] the path");
}

TEST(ModelCheckpoint, MakesFoldersAndChecksThePathBeforeTheFirstStep) {
  const TemporaryDirectory directory;
  Sequential model = small_model();
  fit(model, 2, {callbacks::ModelCheckpoint(directory / "a" / "b" / "{epoch}" / "w")});
  EXPECT_TRUE(std::filesystem::exists(directory / "a" / "b" / "1" / "w"));
  EXPECT_TRUE(std::filesystem::exists(directory / "a" / "b" / "2" / "w"));
  const std::int64_t steps = model.optimizer().iterations();
  expect_error<InvalidArgumentError>(
      [&] { fit(model, 1, {callbacks::ModelCheckpoint(directory / "{val_f1}")}, true); },
      "in braces it may name epoch, loss, val_loss");
  std::ofstream(directory / "file") << "x";
  EXPECT_THROW(fit(model, 1, {callbacks::ModelCheckpoint(directory / "file" / "{epoch}" / "w")}),
               Error);
  EXPECT_EQ(model.optimizer().iterations(), steps);
}

TEST(ModelCheckpoint, KeepsTheBestOnly) {
  const TemporaryDirectory directory;
  Sequential model = small_model();
  std::vector<float> weights;
  const auto record =
      callbacks::LambdaCallback({.on_epoch_end = [&](Model& m, std::int64_t, const Logs&) {
        weights.push_back(m.variables()[0].value().to_vector<float>()[0]);
      }});
  const auto replay = std::make_shared<Replay>(
      callbacks::ModelCheckpoint(directory / "best", {.save_best_only = true}),
      std::vector<double>{3.0, 1.0, 2.0});
  fit(model, 3, {record, Callback(replay)});
  EXPECT_EQ(load_safetensors(directory / "best").tensors.at("dense/kernel").to_vector<float>()[0],
            weights[1]);
}

TEST(CSVLogger, WritesOneLinePerEpoch) {
  const TemporaryDirectory directory;
  Sequential model = small_model();
  const History history = fit(model, 2, {callbacks::CSVLogger(directory / "log.csv")}, true);
  std::ostringstream expected;
  expected.precision(std::numeric_limits<double>::max_digits10);
  const std::string text = read_file(directory / "log.csv");
  EXPECT_EQ(text.substr(0, text.find('\n')), "epoch,loss,val_loss");
  std::istringstream lines(text.substr(text.find('\n') + 1));
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream fields(line);
    std::string field;
    std::getline(fields, field, ',');
    EXPECT_EQ(field, std::to_string(epoch));
    std::getline(fields, field, ',');
    EXPECT_EQ(std::stod(field), history.at("loss")[epoch]) << "metrics are read back exactly";
    std::getline(fields, field, ',');
    EXPECT_EQ(std::stod(field), history.at("val_loss")[epoch]);
  }
  fit(model, 1, {callbacks::CSVLogger(directory / "log.csv", true)}, true);
  const std::string longer = read_file(directory / "log.csv");
  EXPECT_EQ(longer.substr(0, text.size()), text);
  EXPECT_EQ(std::count(longer.begin(), longer.end(), '\n'), 4);
  fit(model, 1, {callbacks::CSVLogger(directory / "log.csv")}, true);
  const std::string fresh = read_file(directory / "log.csv");
  EXPECT_EQ(std::count(fresh.begin(), fresh.end(), '\n'), 2);
  expect_error<NotFoundError>(
      [&] { fit(model, 1, {callbacks::CSVLogger(directory / "none" / "log.csv")}); },
      "[CSVLogger]");
}

TEST(CSVLogger, RefusesToAppendUnderOtherColumns) {
  const TemporaryDirectory directory;
  Sequential model = small_model();
  fit(model, 1, {callbacks::CSVLogger(directory / "log.csv")});
  const std::string text = read_file(directory / "log.csv");
  expect_error<InvalidArgumentError>(
      [&] { fit(model, 1, {callbacks::CSVLogger(directory / "log.csv", true)}, true); },
      "has the columns epoch,loss, and the rows to append have epoch,loss,val_loss");
  EXPECT_EQ(model.optimizer().iterations(), 2) << "it is known before the first step";
  EXPECT_EQ(read_file(directory / "log.csv"), text);
}

TEST(TerminateOnNaN, StopsTrainingWhenTheLossIsNaN) {
  Sequential model = small_model();
  const Tensor x = ones({4, 1});
  Tensor y = constant({1.0F, 1.0F, std::numeric_limits<float>::infinity(), 1.0F});
  const auto data = data::Dataset::from_tensor_slices({x, reshape(y, {4, 1})}).batch(1).repeat(5);
  const History history =
      model.fit(data, {.epochs = 3, .verbose = 0, .callbacks = {callbacks::TerminateOnNaN()}});
  EXPECT_EQ(model.optimizer().iterations(), 3);
  EXPECT_EQ(history.epoch.size(), 1U);
  Sequential good = small_model();
  fit(good, 2, {callbacks::TerminateOnNaN()});
  EXPECT_EQ(good.optimizer().iterations(), 4);
}

TEST(Callback, RefusesANullPointer) {
  expect_error<InvalidArgumentError>([] { Callback(std::shared_ptr<callbacks::CallbackBase>()); },
                                     "[Callback] expected a callback, got a null pointer");
}

// Counts what fit() calls, and stops training at a batch.
class Counting : public callbacks::Callback {
 public:
  explicit Counting(int stop_at = -1) : stop_at_(stop_at) {}
  void on_train_begin(const Logs& logs) override { calls += logs.empty() ? "b" : "?"; }
  void on_train_end(const Logs&) override { calls += "e"; }
  void on_epoch_begin(int epoch, const Logs&) override { calls += std::to_string(epoch) + "<"; }
  void on_epoch_end(int, const Logs& logs) override { calls += logs.contains("loss") ? ">" : "?"; }
  void on_train_batch_begin(int batch, const Logs&) override {
    calls += "(" + std::to_string(batch);
  }
  void on_train_batch_end(int batch, const Logs& logs) override {
    calls += logs.contains("loss") ? ")" : "?";
    if (batch == stop_at_) model->stop_training = true;
  }
  std::string calls;

 private:
  int stop_at_;
};

TEST(OwnCallback, IsCalledByPointer) {
  Sequential model = small_model();
  const auto counting = std::make_shared<Counting>();
  fit(model, 2, {counting});
  EXPECT_EQ(counting->calls, "b0<(0)(1)>1<(0)(1)>e");
  EXPECT_EQ(counting->model, nullptr);
  EXPECT_THROW(counting->model(), FailedPreconditionError);
}

TEST(OwnCallback, ReachesTheModelAsAFunction) {
  struct Stop : callbacks::Callback {
    void on_epoch_end(int, const Logs&) override {
      EXPECT_EQ(&model(), &*model);
      EXPECT_EQ(model()->optimizer().iterations(), 2);
      model().stop_training = true;
    }
  };
  Sequential model = small_model();
  EXPECT_EQ(fit(model, 3, {std::make_shared<Stop>()}).epoch.size(), 1u);
}

TEST(OwnCallback, IsCopiedWhenItIsGivenByValue) {
  Sequential model = small_model();
  Counting counting(0);
  const History history = fit(model, 5, {counting});
  EXPECT_EQ(history.epoch.size(), 1u);  // the copy has stopped training
  EXPECT_EQ(counting.calls, "");
}

TEST(OwnCallback, IsTakenInEveryForm) {
  Sequential model = small_model();
  const Tensor x = ones({2, 1});
  const auto first = std::make_shared<Counting>(), second = std::make_shared<Counting>();
  const callbacks::Callback handle = first;
  const std::vector<std::shared_ptr<callbacks::Callback>> pointers = {
      first, std::make_shared<callbacks::EarlyStopping>(
                 callbacks::EarlyStoppingOptions{.monitor = "loss", .patience = 5})};
  model.fit(x, x, {.verbose = 0, .callbacks = pointers});
  model.fit(x, x, {.verbose = 0, .callbacks = {handle, second, callbacks::LambdaCallback({})}});
  EXPECT_EQ(first->calls, "b0<(0)>eb0<(0)>e");
  EXPECT_EQ(second->calls, "b0<(0)>e");
  expect_error<InvalidArgumentError>([] { Callback(std::shared_ptr<Counting>()); },
                                     "[Callback] expected a callback, got a null pointer");
}

TEST(OwnCallback, ComputesBatchLogsOnlyIfItReadsThem) {
  class Epochs : public callbacks::Callback {
   public:
    void on_epoch_end(int, const Logs&) override {}
  };
  EXPECT_FALSE(Callback(Epochs())->needs_batch_logs());
  EXPECT_TRUE(Callback(Counting())->needs_batch_logs());
  EXPECT_FALSE(Callback(callbacks::EarlyStopping())->needs_batch_logs());
  EXPECT_TRUE(Callback(callbacks::TerminateOnNaN())->needs_batch_logs());
}

TEST(OwnCallback, ExtendsABuiltInOne) {
  class Loud : public callbacks::EarlyStopping {
   public:
    Loud() : EarlyStopping({.monitor = "loss", .patience = 1}) {}
    void on_epoch_end(int epoch, const Logs& logs) override {
      ++epochs;
      EarlyStopping::on_epoch_end(epoch, {{"loss", 1.0}});
      EXPECT_TRUE(logs.contains("loss"));
    }
    int epochs = 0;
  };
  Sequential model = small_model();
  const auto loud = std::make_shared<Loud>();
  fit(model, 10, {loud});
  EXPECT_EQ(loud->epochs, 2);
}

TEST(LambdaCallback, TakesFunctionsWithAndWithoutTheModel) {
  Sequential model = small_model();
  std::string calls;
  fit(model, 1,
      {callbacks::LambdaCallback(
          {.on_epoch_begin = [&](int epoch) { calls += std::to_string(epoch); },
           .on_epoch_end = [&](int,
                               const auto& logs) { calls += logs.contains("loss") ? "l" : "?"; },
           .on_train_begin = [&](const auto&) { calls += "b"; },
           .on_train_end = [&] { calls += "e"; },
           .on_train_batch_begin = [&](Model&, std::int64_t) { calls += "("; },
           .on_train_batch_end = [&](Model&, std::int64_t, const Logs&) { calls += ")"; }})});
  EXPECT_EQ(calls, "b0()()le");
}

TEST(LearningRateScheduler, TakesAFunctionOfTheEpoch) {
  Sequential model = small_model();
  fit(model, 3, {callbacks::LearningRateScheduler([](int epoch) { return 1.0 / (1 + epoch); })});
  EXPECT_NEAR(model.optimizer().learning_rate(), 1.0 / 3, 1e-7);
}

TEST(EarlyStopping, CountsFromAnEpoch) {
  Sequential model = small_model();
  const History history = fit(
      model, 20,
      {std::make_shared<Replay>(callbacks::EarlyStopping({.patience = 1, .start_from_epoch = 4}),
                                std::vector<double>(20, 1.0))});
  EXPECT_EQ(history.epoch.size(), 6u);  // epoch 4 is the first, epoch 5 does not improve on it
}

TEST(ModelCheckpoint, SavesAfterEpochsByName) {
  const TemporaryDirectory folder;
  Sequential model = small_model();
  fit(model, 2,
      {callbacks::ModelCheckpoint(folder / "w{epoch}.safetensors", {.save_freq = "epoch"})});
  EXPECT_TRUE(std::filesystem::exists(folder / "w1.safetensors"));
  EXPECT_THROW(callbacks::SaveFrequency("batch"), InvalidArgumentError);
}

TEST(ModelCheckpoint, SavesAfterStepsInsteadOfEpochs) {
  const TemporaryDirectory folder;
  Sequential model = small_model();
  fit(model, 3, {callbacks::ModelCheckpoint(folder / "w{epoch}.safetensors", {.save_freq = 3})});
  EXPECT_FALSE(std::filesystem::exists(folder / "w1.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "w2.safetensors"));  // after the third step
  EXPECT_TRUE(std::filesystem::exists(folder / "w3.safetensors"));
  expect_error<InvalidArgumentError>(
      [&] { callbacks::ModelCheckpoint(folder / "w", {.save_weights_only = false}); },
      "architecture is C++ code");
}

// Parses the records of a TFRecord file, and checks their lengths and checksums.
std::vector<std::string> records_of(const std::string& bytes) {
  const auto masked = [](const std::string& data) {
    const std::uint32_t crc = crc32c(data);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::vector<std::string> records;
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t length = 0;
    std::uint32_t length_crc = 0, record_crc = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&length_crc, bytes.data() + at + 8, 4);
    EXPECT_EQ(length_crc, masked(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    std::memcpy(&record_crc, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(record_crc, masked(records.back()));
    at += 16 + length;
  }
  EXPECT_EQ(at, bytes.size());
  return records;
}

TEST(TensorBoard, WritesEventFilesOfEachRun) {
  const TemporaryDirectory directory;
  Sequential model = small_model();
  const History history =
      fit(model, 2, {callbacks::TensorBoard({.log_dir = directory.path()})}, true);
  for (const char* run : {"train", "validation"}) {
    const auto files = std::filesystem::directory_iterator(directory / run);
    ASSERT_EQ(std::distance(begin(files), end(files)), 1);
    const auto file = std::filesystem::directory_iterator(directory / run)->path();
    EXPECT_EQ(file.filename().string().rfind("events.out.tfevents.", 0), 0u);
    const std::vector<std::string> records = records_of(read_file(file));
    ASSERT_EQ(records.size(), 3u) << "the version, then an event an epoch";
    EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      // Event.summary (field 5) holds a value (field 1) with its tag (field 1) and a float (field
      // 2).
      const float loss =
          static_cast<float>(history.at(run == std::string("train") ? "loss" : "val_loss")[epoch]);
      std::string value =
          "\x0a\x0a"
          "epoch_loss"
          "\x15" +
          std::string(reinterpret_cast<const char*>(&loss), 4);
      const std::string summary = "\x2a\x13\x0a\x11" + value;
      EXPECT_NE(records[epoch + 1].find(summary), std::string::npos) << run << " " << epoch;
    }
  }
}

TEST(ProgressBar, PrintsPlainLinesWithoutATerminal) {
  Sequential model = small_model();
  const auto data = data::Dataset::from_tensor_slices({ones({4, 1}), ones({4, 1})}).batch(2);
  ::testing::internal::CaptureStderr();
  model.fit(data, {.epochs = 2, .validation_data = data});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  for (const char* part : {"Epoch 1/2 - 2/2 - ", "/step - ", " samples/s - loss: 0.8",
                           " - val_loss: 0.", "Epoch 2/2 - 2/2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  ::testing::internal::CaptureStderr();
  model.fit(data, {.verbose = 0});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tandem::callbacks_test
