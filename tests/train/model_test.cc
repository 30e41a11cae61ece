#include "tandem/model.h"

#include <gtest/gtest.h>

#include <sstream>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/checkpoint.h"
#include "tandem/math.h"
#include "tandem/random.h"

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

}  // namespace
}  // namespace tandem::model_test
