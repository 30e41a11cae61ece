#include "tandem/model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/checkpoint.h"
#include "tandem/math.h"
#include "tandem/random.h"
#include "tandem/utils.h"

namespace tandem::model_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::TemporaryDirectory;
using testing::values_of;

std::vector<std::string> names_of(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable& variable : variables) names.push_back(variable.name());
  return names;
}

Layer doubling() {
  return layers::Lambda([](const Tensor& x) { return x * 2.0; });
}

TEST(Sequential, IsBuiltImmediatelyWithAnInputShape) {
  const Sequential model(
      {layers::Dense(3, {.activation = "relu", .input_shape = {4}}), layers::Dense(2)});
  EXPECT_TRUE(model.built());
  EXPECT_EQ(
      names_of(model.variables()),
      (std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}));
  EXPECT_EQ(model.count_params(), 4 * 3 + 3 + 3 * 2 + 2);
  EXPECT_EQ(model(ones({5, 4})).shape(), Shape({5, 2}));
}

TEST(Sequential, IsBuiltByTheFirstCallOtherwise) {
  Sequential model({layers::Dense(3)});
  EXPECT_FALSE(model.built());
  expect_error<FailedPreconditionError>([&] { model.variables(); },
                                        "[variables] the model is not built");
  EXPECT_EQ(model(ones({5, 4})).shape(), Shape({5, 3}));
  EXPECT_EQ(model.count_params(), 15);
}

TEST(Sequential, BuildTakesTheShapeOfABatch) {
  Sequential model({layers::Dense(3)});
  expect_error<InvalidArgumentError>([&] { model.build(Shape()); },
                                     "[build] expected a shape with a batch axis");
  model.build({-1, 7});
  EXPECT_EQ(model.count_params(), 7 * 3 + 3);
}

TEST(Model, AnUndefinedModelThrows) {
  Model model;
  EXPECT_FALSE(model.defined());
  expect_error<FailedPreconditionError>([&] { model(ones({1})); },
                                        "[call] an undefined model was used");
  expect_error<FailedPreconditionError>(
      [&] {
        model.fit(ones({1, 1}), ones({1, 1}));
      },
      "[fit] an undefined model was used");
}

// A model class as users write it.
class TwoHeads final : public LayerBase {
 public:
  TwoHeads() : LayerBase("two_heads") {}
  std::string kind() const override { return "two_heads"; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override {
    return concat({left_(inputs, options), right_(inputs, options)}, 1);
  }
  Shape output_shape(std::span<const Shape>) const override { return {-1, 5}; }
  std::vector<Layer> children() const override { return {left_, right_}; }

 private:
  Layer left_ = layers::Dense(2, {.name = "left"});
  Layer right_ = layers::Dense(3, {.name = "right"});
};

TEST(Model, IsAnyLayer) {
  Model model(Layer(std::make_shared<TwoHeads>()));
  EXPECT_EQ(model(ones({2, 4})).shape(), Shape({2, 5}));
  EXPECT_EQ(names_of(model.variables()),
            (std::vector<std::string>{"left/kernel", "left/bias", "right/kernel", "right/bias"}));
}

TEST(Functional, ComputesWhatItsGraphSays) {
  const SymbolicInput x = Input({3});
  const Layer dense = layers::Dense(3, {.name = "shared"});
  const SymbolicInput h = dense(x);
  const Functional model(x, layers::Add()({dense(h), doubling()(x)}));
  EXPECT_EQ(h.shape(), Shape({-1, 3}));
  EXPECT_EQ(names_of(model.variables()), (std::vector<std::string>{"shared/kernel", "shared/bias"}))
      << "a layer used twice has one set of variables";

  const Tensor input = testing::random_tensor({2, 3}, 5, -1.0, 1.0, float32);
  const Tensor kernel = model.variables()[0], bias = model.variables()[1];
  const Tensor expected = matmul(matmul(input, kernel) + bias, kernel) + bias + input * 2.0;
  expect_tensor(model(input), float32, {2, 3}, values_of(expected), 1e-5);
}

TEST(Functional, TakesSeveralInputs) {
  const SymbolicInput a = Input({2}, "a"), b = Input({3}, "b");
  const Functional model({a, b}, layers::Concatenate()({b, a}));
  const std::vector<Tensor> inputs = {constant({{1.0, 2.0}}), constant({{3.0, 4.0, 5.0}})};
  expect_tensor(model(inputs), float32, {1, 5}, {3, 4, 5, 1, 2});
  expect_error<InvalidArgumentError>([&] { model(inputs[0]); }, "expected 2 inputs, got 1");
}

TEST(Functional, RefusesDisconnectedGraphs) {
  const SymbolicInput a = Input({2}, "a"), b = Input({2}, "b");
  const SymbolicInput sum = layers::Add()({a, b});
  expect_error<InvalidArgumentError>(
      [&] { Functional(a, sum); },
      "[Functional] the output depends on an Input() 'b' of shape (?, 2)");
  expect_error<InvalidArgumentError>([&] { Functional({a, a, b}, sum); }, "is given twice");
  expect_error<InvalidArgumentError>(
      [&] { Functional(sum, doubling()(sum)); },
      "[Functional] expected Input()s as inputs, got the result of layer");
  expect_error<InvalidArgumentError>([&] { Functional(a, a); },
                                     "expected layers between input and output");
  expect_error<InvalidArgumentError>([&] { Input(Shape()); }, "[Input]");
}

TEST(Functional, ShapesAreCheckedWhenLayersAreCalled) {
  const SymbolicInput x = Input({28, 28});
  expect_error<InvalidArgumentError>([&] { layers::Conv2D(3, 3, {.name = "first"})(x); },
                                     "[first] expected");
}

TEST(Functional, SupportsVeryDeepGraphs) {
  const SymbolicInput x = Input({1});
  SymbolicInput y = x;
  for (int i = 0; i < 5'000; ++i) y = layers::Activation("linear")(y);
  const Functional model(x, y);
  expect_tensor(model(constant({{3.0}})), float32, {1, 1}, {3.0});
}

TEST(Model, SummaryListsLayersShapesAndParameters) {
  const Sequential model(
      {layers::Conv2D(32, {3, 3}, {.activation = "relu", .input_shape = {28, 28, 1}}),
       layers::BatchNormalization(), layers::Flatten(), layers::Dense(10)});
  std::ostringstream out;
  model.summary(out);
  const std::string text = out.str();
  for (const char* part : {"Model: \"sequential\"\n", "conv2d (conv2d)", "(None, 26, 26, 32)",
                           " 320", "flatten (flatten)", "(None, 21632)", "dense (dense)", "216330",
                           "Total params: 216778 (846.79 KiB)", "Trainable params: 216714",
                           "Non-trainable params: 64 (256 B)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;

  const SymbolicInput x = Input({8});
  std::ostringstream functional;
  Functional(x, layers::Dense(2)(layers::Dense(4)(x))).summary(functional);
  EXPECT_NE(functional.str().find("(None, 4)"), std::string::npos) << functional.str();
}

// A transformer block: attention and a position-wise network, each after a normalisation and
// with a residual connection.
TEST(Model, ATransformerIsFittedSavedAndLoaded) {
  const auto make = [] {
    const SymbolicInput tokens = Input({6});
    SymbolicInput x = layers::Embedding(11, 8)(tokens);
    x = layers::Add()(std::vector<SymbolicInput>{x, layers::PositionEmbedding(6)(x)});
    SymbolicInput y = layers::LayerNormalization()(x);
    y = layers::MultiHeadAttention(
        2, 4, {.dropout = 0.1, .use_causal_mask = true})(std::vector<SymbolicInput>{y, y});
    x = layers::Add()(std::vector<SymbolicInput>{x, y});
    y = layers::Dense(16, {.activation = "gelu"})(layers::LayerNormalization()(x));
    x = layers::Add()(std::vector<SymbolicInput>{x, layers::Dense(8)(y)});
    return Functional(tokens, layers::Dense(3)(layers::Flatten()(x)));
  };
  random::set_seed(1);
  Functional first = make();
  const Tensor tokens = random::uniform_int({40, 6}, 0, 11, {.dtype = int64});
  // The task: in which third of the vocabulary the last token is.
  const Tensor labels = cast(reshape(slice(tokens, {0, 5}, {-1, 1}), {40}), float32) / 4.0;
  first.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const auto dataset = data::Dataset::from_tensor_slices({tokens, cast(labels, int64)}).batch(16);
  const History history = first.fit(dataset, {.epochs = 30, .verbose = 0});
  EXPECT_LT(history.at("loss").back(), 0.5 * history.at("loss").front());

  const TemporaryDirectory directory;
  save_weights(first, directory / "w");
  Functional second = make();
  ASSERT_NE(values_of(first(tokens)), values_of(second(tokens)));
  second.load_weights(directory / "w");
  EXPECT_EQ(values_of(first(tokens)), values_of(second(tokens)));
}

TEST(Model, WeightsAreLoadedFromTheirFile) {
  const TemporaryDirectory directory;
  const auto make = [] {
    return Sequential(
        {layers::Dense(3, {.input_shape = {4}}), layers::BatchNormalization(), layers::Dense(2)});
  };
  const Sequential first = make();
  Sequential second = make();
  const Tensor x = testing::random_tensor({6, 4}, 1, -1.0, 1.0, float32);
  ASSERT_NE(values_of(first(x)), values_of(second(x)));
  save_weights(first, directory / "w");
  second.load_weights(directory / "w");
  EXPECT_EQ(values_of(first(x)), values_of(second(x)));

  for (const char* other : {"w.weights.h5", "w.keras", "w.pt"})
    expect_error<InvalidArgumentError>([&] { first.save_weights(directory / other); },
                                       "is the extension of another one: expected '.safetensors'");
  Sequential shorter({layers::Dense(3, {.input_shape = {4}}), layers::Dense(2)});
  expect_error<InvalidArgumentError>([&] { shorter.load_weights(directory / "w"); },
                                     "no variable is named 'batch_normalization/beta'");
  Sequential longer({layers::Dense(3, {.input_shape = {4}}), layers::BatchNormalization(),
                     layers::Dense(2), layers::Dense(2)});
  expect_error<NotFoundError>([&] { longer.load_weights(directory / "w"); },
                              "it has no tensor for 'dense_2/kernel', 'dense_2/bias'");
  Sequential wider(
      {layers::Dense(5, {.input_shape = {4}}), layers::BatchNormalization(), layers::Dense(2)});
  expect_error<InvalidArgumentError>([&] { wider.load_weights(directory / "w"); },
                                     "'dense/kernel' is float32 (4, 3), expected float32 (4, 5)");
}

TEST(Compile, RefusesWhatCannotTrain) {
  Sequential model({layers::Dense(1, {.input_shape = {1}})});
  expect_error<InvalidArgumentError>([&] { model.compile({}); },
                                     "[compile] expected a loss, got none");
  expect_error<InvalidArgumentError>([&] { model.compile({.optimizer = "sdg", .loss = "mse"}); },
                                     "got 'sdg'");
  expect_error<InvalidArgumentError>([&] { model.compile({.loss = "mes"}); }, "got 'mes'");
  expect_error<InvalidArgumentError>(
      [&] {
        model.compile({.loss = "mse", .metrics = {"mae", "mae"}});
      },
      "'mae'");
  expect_error<InvalidArgumentError>(
      [&] {
        model.compile({.loss = losses::MeanSquaredError({.reduction = losses::Reduction::kNone})});
      },
      "kNone");
  expect_error<FailedPreconditionError>(
      [&] {
        model.fit(ones({1, 1}), ones({1, 1}));
      },
      "[fit] the model is not compiled; call compile() first");
  expect_error<FailedPreconditionError>(
      [&] {
        model.evaluate(ones({1, 1}), ones({1, 1}));
      },
      "[evaluate]");
  expect_error<FailedPreconditionError>([&] { model.optimizer(); }, "[optimizer]");
}

TEST(History, NamesTheMetricsItHas) {
  History history;
  history.history = {{"loss", {1.0}}, {"accuracy", {0.5}}};
  EXPECT_EQ(history.at("loss"), std::vector<double>{1.0});
  expect_error<NotFoundError>(
      [&] { history.at("val_loss"); },
      "[History] metric 'val_loss' is not available. Available metrics are: 'accuracy', 'loss'");
}

TEST(Sequential, GrowsByAdd) {
  Sequential model;
  model.add(Input({4}));
  expect_error<Error>([&] { model(ones({1, 4})); }, "undefined layer");
  model.add(layers::Dense(3, {.activation = "relu"}));
  EXPECT_TRUE(model.built());
  const Variable kernel = model.variables()[0];
  model.add(layers::Dense(2));
  EXPECT_EQ(
      names_of(model.variables()),
      (std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}));
  EXPECT_TRUE(model.variables()[0] == kernel);
  EXPECT_EQ(model(ones({5, 4})).shape(), Shape({5, 2}));
  EXPECT_EQ(model.layers().size(), 2u);
  expect_error<InvalidArgumentError>([&] { model.add(Input({2})); }, "only as the first element");
}

TEST(Sequential, AddsToAModelThatWasBuiltAndCompiled) {
  Sequential model({layers::Dense(3)});
  const Sequential copy = model;
  model(ones({5, 4}));
  model.compile({.optimizer = "sgd", .loss = "mse"});
  model.fit(ones({4, 4}), ones({4, 3}), {.verbose = 0});
  model.add(layers::ReLU());
  model.add(layers::Dense(1));
  EXPECT_EQ(model.fit(ones({4, 4}), ones({4, 1}), {.verbose = 0}).at("loss").size(), 1u);
  EXPECT_EQ(model.predict(ones({4, 4})).shape(), Shape({4, 1}));
  EXPECT_EQ(copy.layers().size(), 3u);
  model.trainable = false;
  model.add(layers::Dense(1));
  EXPECT_TRUE(model.trainable_variables().empty());
}

TEST(Sequential, BeginsWithAnInput) {
  const Sequential model({Input({4}), layers::Dense(3)});
  EXPECT_TRUE(model.built());
  EXPECT_EQ(model.layers().size(), 1u);
  EXPECT_EQ(model.count_params(), 15);
  const SymbolicInput input = Input({4});
  const SymbolicInput output = layers::Dense(3)(input);
  expect_error<InvalidArgumentError>(
      [&] {
        Sequential({layers::Dense(1), input});
      },
      "only as the first element");
  expect_error<InvalidArgumentError>(
      [&] {
        Sequential({output, layers::Dense(1)});
      },
      "got the result of layer");
}

TEST(Model, IsALayerOfAnotherModel) {
  Sequential base({layers::Dense(3, {.input_shape = {4}, .name = "hidden"})}, {.name = "base"});
  base.trainable = false;
  Sequential model({base, layers::Dense(1, {.name = "head"})}, "whole");
  EXPECT_EQ(model.name(), "whole");
  EXPECT_EQ(model.trainable_weights().size(), 2u);
  EXPECT_EQ(model.weights().size(), 4u);
  EXPECT_EQ(model.get_layer("base").shared(), base.layer().shared());
  for (const Layer& layer : base.layers()) layer.trainable = true;
  EXPECT_EQ(model.trainable_weights().size(), 4u);
  EXPECT_FALSE(base.trainable);
  base.trainable = true;
  EXPECT_TRUE(base.trainable());
  base.set_weights({zeros({4, 3}), ones({3})});
  EXPECT_EQ(values_of(model.get_weights()[1])[0], 1.0);
}

TEST(Model, ModelsOfEqualNamesGetPathsInAnotherModel) {
  const auto part = [](std::int64_t in, const char* name) {
    return Sequential({layers::Dense(3, {.input_shape = {in}})}, {.name = name});
  };
  const Sequential model({part(4, "a"), part(3, "b")});
  EXPECT_EQ(names_of(model.variables()),
            (std::vector<std::string>{"a/dense/kernel", "a/dense/bias", "b/dense/kernel",
                                      "b/dense/bias"}));
}

TEST(Model, IsMadeOfSymbolicInputs) {
  const SymbolicInput input = Input({.shape = {4}, .name = "x"});
  const Model model(input, layers::Dense(2)(layers::Dense(3)(input)), "net");
  EXPECT_EQ(model.name(), "net");
  EXPECT_EQ(model(ones({5, 4})).shape(), Shape({5, 2}));
}

TEST(Model, TrainsOnOneBatch) {
  Sequential model({layers::Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})});
  model.compile({.optimizer = optimizers::SGD(0.25), .loss = "mse", .metrics = {"mae"}});
  const Tensor x = ones({2, 1}), y = ones({2, 1});
  EXPECT_EQ(model.train_on_batch(x, y).at("loss"), 1.0);
  EXPECT_EQ(model.optimizer().iterations(), 1);
  EXPECT_NEAR(model.test_on_batch(x, y).at("mae"), 0.5, 1e-6);
  EXPECT_NEAR(values_of(model.predict_on_batch(x))[0], 0.5, 1e-6);
  EXPECT_NEAR(model.train_on_batch(x, y, constant({1.0f, 0.0f})).at("loss"), 0.125, 1e-6);
}

TEST(Model, AConstModelPredictsFromSeveralThreads) {
  Sequential model({layers::Dense(2, {.input_shape = {3}})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Sequential constant_model = model;
  const Tensor x = ones({4, 3});
  const std::vector<double> expected = values_of(constant_model.predict(x));
  std::vector<std::vector<double>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] { result = values_of(constant_model.predict(x)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(Model, SummaryGoesToTheStandardOutput) {
  const Sequential model({layers::Dense(2, {.input_shape = {3}})});
  std::ostringstream written;
  model.summary(written);
  ::testing::internal::CaptureStdout();
  model.summary();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), written.str());
}

TEST(Model, FlagsOfAnUndefinedModelThrow) {
  Model model;
  expect_error<FailedPreconditionError>([&] { model.trainable = false; }, "undefined model");
  expect_error<FailedPreconditionError>([&] { model.stop_training = true; }, "undefined model");
  EXPECT_FALSE(model.stop_training);
}

TEST(Model, LoadModelSaysWhatToDo) {
  const TemporaryDirectory folder;
  expect_error<NotFoundError>([&] { load_model(folder / "none"); }, "there is no file");
  save(ones({1}), folder / "m");
  expect_error<UnimplementedError>([&] { load_model(folder / "m"); }, "model.load_weights");
}

TEST(SaveAndLoad, KeepTensorsAndStates) {
  const TemporaryDirectory folder;
  save(ones({2, 3}), folder / "t.pt");
  Tensor read;
  load(read, folder / "t.pt");
  EXPECT_EQ(read.shape(), Shape({2, 3}));
  Sequential a({layers::Dense(2, {.input_shape = {3}})}),
      b({layers::Dense(2, {.input_shape = {3}})});
  save(a.state_dict(), folder / "a.pt");
  b.load_state_dict(load(folder / "a.pt"));
  EXPECT_EQ(values_of(a.get_weights()[0]), values_of(b.get_weights()[0]));
  expect_error<InvalidArgumentError>([&] { load(read, folder / "a.pt"); }, "got 2");
  const Sequential unbuilt({layers::Dense(2)});
  expect_error<FailedPreconditionError>([&] { save(unbuilt, folder / "u"); }, "no variables yet");
}

TEST(SaveAndLoad, RefuseAFileOfPyTorch) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "torch.pt") << "PK\3\4archive/data.pkl";
  expect_error<InvalidArgumentError>([&] { return load(folder / "torch.pt").size(); },
                                     "safetensors.torch.save_file");
}

TEST(History, IsIteratedOver) {
  const History history{.epoch = {0}, .history = {{"loss", {1.0}}, {"mae", {2.0}}}};
  std::vector<std::string> names;
  for (const auto& [name, values] : history) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"loss", "mae"}));
}

TEST(ToCategorical, MakesOneHotRows) {
  expect_tensor(utils::to_categorical(constant({0, 2})), float32, {2, 3}, {1, 0, 0, 0, 0, 1});
  expect_tensor(utils::to_categorical(constant({1.0f}, {.shape = {1, 1}}), 2), float32, {1, 2},
                {0, 1});
  expect_error<InvalidArgumentError>(
      [] {
        return utils::to_categorical(constant({0, 3}), 3);
      },
      "expected labels in [0, 3), got 0 to 3");
  expect_error<InvalidArgumentError>(
      [] {
        return utils::to_categorical(ones({2, 2}));
      },
      "expected labels of shape (n,)");
}

}  // namespace
}  // namespace tandem::model_test
