// Models of several outputs: training, evaluation and prediction.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::outputs_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::TemporaryDirectory;
using testing::values_of;

constexpr std::int64_t kExamples = 37;  // in batches of 8 and 5
Tensor title() { return random_tensor({kExamples, 6}, 3, -1.0, 1.0, float32); }
Tensor body() { return random_tensor({kExamples, 4}, 5, -1.0, 1.0, float32); }
Tensor score() { return reduce_sum(title(), {.axis = {1}, .keepdims = true}); }
Tensor label() { return cast(reduce_sum(body(), {.axis = {1}}) > 0.0, int64); }

Model make_model() {
  random::set_seed(4);
  const SymbolicInput a = Input({6}, "title"), b = Input({4}, "body");
  const SymbolicInput both = layers::Concatenate()({a, b});
  const SymbolicInput hidden = layers::Dense(8, {.activation = "tanh"})(both);
  return Model({a, b}, {layers::Dense(1, {.name = "score"})(hidden),
                        layers::Dense(2, {.name = "label"})(hidden)});
}

CompileOptions options(bool eagerly = false) {
  return {.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
          .loss = {{"score", "mse"},
                   {"label", losses::SparseCategoricalCrossentropy({.from_logits = true})}},
          .loss_weights = {{"score", 0.5}},
          .metrics = {{"score", {"mae"}}, {"label", {"accuracy"}}},
          .run_eagerly = eagerly};
}

History fit(Model& model) {
  return model.fit({title(), body()}, {score(), label()},
                   {.epochs = 3, .batch_size = 8, .verbose = 0, .shuffle = false});
}

// The same training as a loop, with the losses of each output by name.
std::map<std::string, std::vector<double>> fit_by_hand(const Model& model) {
  optimizers::SGD optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const losses::MeanSquaredError mse;
  const losses::SparseCategoricalCrossentropy crossentropy({.from_logits = true});
  std::map<std::string, std::vector<double>> history;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::map<std::string, double> sums;
    for (std::int64_t begin = 0; begin < kExamples; begin += 8) {
      const std::int64_t end = std::min<std::int64_t>(begin + 8, kExamples);
      const auto rows = [&](const Tensor& x) { return slice_rows(x, begin, end); };
      GradientTape tape;
      const auto outputs = model.call_all({rows(title()), rows(body())}, {.training = true});
      const Tensor of_score = mse(rows(score()), outputs[0]);
      const Tensor of_label = crossentropy(rows(label()), outputs[1]);
      const Tensor loss = of_score * 0.5 + of_label;
      optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                                model.trainable_variables());
      const auto count = static_cast<double>(end - begin);
      sums["loss"] += loss.item() * count;
      sums["score_loss"] += of_score.item() * count;
      sums["label_loss"] += of_label.item() * count;
      sums["score_mae"] += reduce_sum(abs(outputs[0] - rows(score()))).item();
      sums["label_accuracy"] +=
          reduce_sum(cast(argmax(outputs[1], 1) == rows(label()), float32)).item();
    }
    for (const auto& [name, sum] : sums)
      history[name].push_back(sum / static_cast<double>(kExamples));
  }
  return history;
}

void expect_equal(const std::map<std::string, std::vector<double>>& actual,
                  const std::map<std::string, std::vector<double>>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(actual.at(name)[i], values[i], 1e-5) << name << ' ' << i;
  }
}

TEST(Outputs, AreTrainedByTheWeightedSumOfTheirLosses) {
  Model by_hand = make_model();
  const auto expected = fit_by_hand(by_hand);
  for (const bool eagerly : {false, true}) {
    Model model = make_model();
    EXPECT_EQ(model.output_names(), (std::vector<std::string>{"score", "label"}));
    model.compile(options(eagerly));
    expect_equal(fit(model).history, expected);
    const Predictions predictions = model.predict({title(), body()}, {.batch_size = 8});
    const auto outputs = by_hand.call_all({title(), body()});
    expect_tensor(predictions[0], float32, {kExamples, 1}, values_of(outputs[0]), 1e-5);
    expect_tensor(predictions[1], float32, {kExamples, 2}, values_of(outputs[1]), 1e-5);
  }
}

TEST(Outputs, AreTrainedUnderStrategiesAsOnOneDevice) {
  config::set_logical_cpus(2);
  Model one = make_model();
  one.compile(options());
  const History expected = fit(one);
  const std::vector<Tensor> outputs = one.predict({title(), body()});
  const auto evaluated = one.evaluate({title(), body()}, {score(), label()}, {.batch_size = 8});
  const auto trains_equally = [&](const distribute::Strategy& strategy, bool eagerly) {
    const auto scope = strategy.scope();
    Model model = make_model();
    model.compile(options(eagerly));
    expect_equal(fit(model).history, expected.history);
    const std::vector<Tensor> predicted = model.predict({title(), body()}, {.batch_size = 8});
    ASSERT_EQ(predicted.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i)
      expect_tensor(predicted[i], float32, outputs[i].shape(), values_of(outputs[i]), 1e-5);
    const auto result = model.evaluate({title(), body()}, {score(), label()}, {.batch_size = 8});
    ASSERT_EQ(result.size(), evaluated.size());
    for (const auto& [name, value] : evaluated) EXPECT_NEAR(result.at(name), value, 1e-5) << name;
  };
  for (const bool eagerly : {false, true}) {
    trains_equally(distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}}), eagerly);
    trains_equally(distribute::CentralStorageStrategy({"/cpu:0", "/cpu:1"}), eagerly);
  }
}

TEST(Outputs, HaveSampleWeightsForAllOrForEach) {
  Model model = make_model();
  CompileOptions weighted = options();
  weighted.loss = {losses::MeanSquaredError(),
                   losses::SparseCategoricalCrossentropy({.from_logits = true})};
  weighted.weighted_metrics = {{"score", metrics::MeanSquaredError("weighted")}};
  model.compile(weighted);
  const Tensor w = random_tensor({kExamples}, 7, 0.1, 2.0, float32), v = square(w);
  const auto outputs = model.call_all({title(), body()});
  const Tensor of_score = reduce_mean(square(outputs[0] - score()), {.axis = {1}});
  const Tensor of_label = losses::SparseCategoricalCrossentropy(
      {.from_logits = true, .reduction = "none"})(label(), outputs[1]);
  const auto mean = [](const Tensor& x) { return reduce_mean(x).item(); };
  const auto all = model.evaluate({title(), body()}, {score(), label()}, {.sample_weight = w});
  EXPECT_NEAR(all.at("score_loss"), mean(of_score * w), 1e-5);
  EXPECT_NEAR(all.at("label_loss"), mean(of_label * w), 1e-5);
  EXPECT_NEAR(all.at("loss"), 0.5 * mean(of_score * w) + mean(of_label * w), 1e-5);
  EXPECT_NEAR(all.at("score_weighted"), mean(of_score * w) / mean(w), 1e-5);
  const auto data = data::Dataset::from_tensor_slices({title(), body(), score(), label(), w, v});
  const auto each = model.evaluate(data.batch(8));
  EXPECT_NEAR(each.at("score_loss"), mean(of_score * w), 1e-5);
  EXPECT_NEAR(each.at("label_loss"), mean(of_label * v), 1e-5);
  EXPECT_NEAR(model.test_on_batch({title(), body()}, {score(), label()}, w).at("loss"),
              all.at("loss"), 1e-5);
}

TEST(Outputs, TakeOneLossForAllAndMayHaveNone) {
  Model model = make_model();
  const Tensor one_hot = utils::to_categorical(label(), 2);
  model.compile({.optimizer = "sgd", .loss = "mse", .loss_weights = {2, 3}});
  const auto both = model.evaluate({title(), body()}, {score(), one_hot});
  EXPECT_NEAR(both.at("loss"), 2 * both.at("score_loss") + 3 * both.at("label_loss"), 1e-5);

  model.compile({.optimizer = "sgd", .loss = {{"score", "mse"}}});
  const std::vector<double> before = values_of(model.get_layer("label").get_weights()[0]);
  const History history = fit(model);
  EXPECT_EQ(history.history.size(), 2u);
  EXPECT_LT(history.at("score_loss").back(), history.at("score_loss").front());
  EXPECT_EQ(history.at("loss"), history.at("score_loss"));
  EXPECT_EQ(values_of(model.get_layer("label").get_weights()[0]), before);
}

TEST(Outputs, AreValidatedMonitoredAndSaved) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "weights.safetensors";
  Model model = make_model();
  model.compile(options());
  const History history = model.fit(
      {title(), body()}, {score(), label()},
      {.epochs = 4,
       .batch_size = 8,
       .validation_split = 0.25,
       .verbose = 0,
       .callbacks = {
           callbacks::EarlyStopping({.monitor = "val_score_loss", .patience = 4}),
           callbacks::ModelCheckpoint(path.string(), {.monitor = "val_label_accuracy"})}});
  EXPECT_EQ(history.at("val_score_mae").size(), 4u);
  const History other =
      model.fit({title(), body()}, {score(), label()},
                {.validation_data = {{title(), body()}, {score(), label()}}, .verbose = 0});
  EXPECT_EQ(other.at("val_label_loss").size(), 1u);
  model.save_weights(path);
  Model loaded = make_model();
  loaded.load_weights(path);
  EXPECT_EQ(values_of(loaded.predict({title(), body()})[1]),
            values_of(model.predict({title(), body()})[1]));
}

// Outputs of one layer, and an input that is an output.
TEST(Outputs, HaveTheNamesOfTheirLayers) {
  const SymbolicInput x = Input({3}, "x"), y = Input({3}, "y");
  const Layer shared = layers::Dense(3, {.name = "shared"});
  const Model model({x, y}, {shared(x), shared(y), x}, {.name = "twins"});
  EXPECT_EQ(model.output_names(), (std::vector<std::string>{"shared", "shared_1", "x"}));
  EXPECT_EQ(model.name(), "twins");
  const Tensor a = random_tensor({2, 3}, 1, -1.0, 1.0, float32), b = square(a);
  const auto outputs = model.call_all({a, b});
  EXPECT_EQ(values_of(outputs[0]), values_of(shared(a)));
  EXPECT_EQ(values_of(outputs[1]), values_of(shared(b)));
  EXPECT_EQ(values_of(outputs[2]), values_of(a));
}

TEST(Outputs, OfPredictAreInOrderAndThatOfOneIsATensor) {
  Model model = make_model();
  const Predictions several = model.predict({title(), body()});
  EXPECT_FALSE(several.defined());
  EXPECT_TRUE(several[-1].same_as(several[1]));
  expect_error<OutOfRangeError>([&] { several[2]; }, "index of an output in [-2, 2), got 2");
  const Sequential single({layers::Dense(2, {.input_shape = {6}})});
  const Predictions one = single.predict(title());
  EXPECT_EQ(one.shape(), (Shape{kExamples, 2}));
  EXPECT_EQ(one[3].shape(), Shape{2});
}

class OwnFunctional : public Functional {
 public:
  using Functional::Functional;
};

TEST(Outputs, AndInputsAreTakenByTheirNames) {
  Model model = make_model(), named = make_model();
  model.compile(options());
  named.compile(options());
  const History history = fit(model);
  const History of_named =
      named.fit({{"body", body()}, {"title", title()}}, {{"label", label()}, {"score", score()}},
                {.epochs = 3, .batch_size = 8, .verbose = 0, .shuffle = false});
  EXPECT_EQ(history.history.at("loss"), of_named.history().at("loss"));
  const std::map<std::string, Tensor> inputs = {{"body", body()}, {"title", title()}};
  EXPECT_EQ(model.evaluate({title(), body()}, {score(), label()}, {.verbose = 0}),
            named.evaluate(inputs, {{"label", label()}, {"score", score()}}, {.verbose = 0}));
  EXPECT_EQ(values_of(named.predict(inputs)[1]), values_of(model.predict({title(), body()})[1]));
  EXPECT_EQ(values_of(named.call_all(inputs)[0]), values_of(model.call_all({title(), body()})[0]));
  expect_error<InvalidArgumentError>(
      [&] {
        named.predict({{"title", title()}, {"text", body()}});
      },
      "[Model] expected a tensor for each input: 'title', 'body'; "
      "got 'title', 'text'");
  Sequential unnamed({layers::Dense(1, {.input_shape = {6}})});
  unnamed.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<InvalidArgumentError>(
      [&] {
        unnamed.fit(title(), {{"score", score()}});
      },
      "[Model] expected a tensor for each output: here they have no "
      "names; got 'score'");
}

TEST(Outputs, OfWhatTakesOneAreRefused) {
  Model model = make_model();
  const auto compile = [&](CompileOptions wrong) {
    return [&model, wrong] { model.compile(wrong); };
  };
  expect_error<InvalidArgumentError>(compile({.loss = {{"scor", "mse"}}}),
                                     "[compile] loss expected names of outputs, 'score', 'label', "
                                     "got 'scor'");
  expect_error<InvalidArgumentError>(
      compile({.loss = "mse", .metrics = {"mae"}}),
      "[compile] For a model with multiple outputs, when providing `metrics` as a list, it should "
      "have as many entries as the model has outputs: expected 2, got 1");
  expect_error<InvalidArgumentError>(
      compile({.loss = "mse", .loss_weights = {{"score", {1.0, 2.0}}}}),
      "[compile] loss_weights expected one value of an output, got 2");
  expect_error<InvalidArgumentError>(
      compile({.loss = "mse", .metrics = {{"score", {"mae", "mae"}}}}), "two of 'score_mae'");
  model.compile({.loss = "mse"});
  const Tensor one_hot = utils::to_categorical(label(), 2);
  expect_error<InvalidArgumentError>(
      [&] {
        model({title(), body()});
      },
      "expected a model of one output, got 2: call_all()");
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit({title(), body()}, score(), {.verbose = 0});
      },
      "[fit] expected elements of 4 to 6 components (inputs, then targets, then perhaps sample "
      "weights), got 3");
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit({title(), body()}, {score(), one_hot},
                  {.verbose = 0, .class_weight = {{0, 2.0}}});
      },
      "`class_weight` is only supported for Models with a single output");
  expect_error<UnimplementedError>([&] { model.compute_loss(title(), score(), score()); },
                                   "[compute_loss] expected a model of one output, got 2");
  const SymbolicInput x = Input({3});
  const SymbolicInput hidden = layers::Dense(2)(x);
  OwnFunctional own(x, {layers::Dense(1)(hidden), layers::Dense(1)(hidden)});
  expect_error<UnimplementedError>([&] { own.compile({.loss = "mse"}); },
                                   "[compile] expected one output of a class that is derived from "
                                   "Model, got 2");
  const SymbolicInput a = Input({6}), b = Input({4});
  expect_error<InvalidArgumentError>(
      [&] {
        model({a, b});
      },
      "expected a model of one output, got 2");
  expect_error<InvalidArgumentError>([&] { Model(x, std::vector<SymbolicInput>()); },
                                     "[Functional] expected outputs, got none");
  Sequential single({layers::Dense(2, {.input_shape = {6}})});
  expect_error<InvalidArgumentError>(
      [&] {
        single.compile({.loss = {{"dense", "mse"}}});
      },
      "of which a model with one has none, got 'dense'");
}

}  // namespace
}  // namespace tandem::outputs_test
