#include "tandem/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/layer_support.h"
#include "support/tensors.h"
#include "tandem/autodiff.h"
#include "tandem/convolution_layers.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::layers_test {
namespace {

using namespace testing;

std::int64_t count_params(const std::vector<Variable>& variables) {
  std::int64_t count = 0;
  for (const Variable& variable : variables) count += variable.shape().num_elements();
  return count;
}

void build(const Layer& layer, const Shape& shape) { layer.base().ensure_built({&shape, 1}); }

struct Case {
  Layer layer;
  Shape input;
  Shape output;
  std::int64_t parameters;
};

std::vector<Case> single_input_cases() {
  using namespace layers;
  return {
      {Dense(7), {-1, 5}, {-1, 7}, 5 * 7 + 7},
      {Dense(7, {.use_bias = false}), {-1, 4, 5}, {-1, 4, 7}, 5 * 7},
      {Conv2D(8, 3), {-1, 10, 12, 4}, {-1, 8, 10, 8}, 3 * 3 * 4 * 8 + 8},
      {Conv2D(8, {3, 5}, {.strides = 2, .padding = "same"}),
       {-1, 9, 10, 4},
       {-1, 5, 5, 8},
       15 * 4 * 8 + 8},
      {Conv2D(8, 3, {.strides = {2, 3}}), {-1, 10, 12, 4}, {-1, 4, 4, 8}, 9 * 4 * 8 + 8},
      {Conv2D(8, 3, {.dilation_rate = 2, .groups = 2}),
       {-1, 10, 12, 4},
       {-1, 6, 8, 8},
       9 * 2 * 8 + 8},
      {DepthwiseConv2D(3, {.depth_multiplier = 2}), {-1, 10, 12, 4}, {-1, 8, 10, 8}, 9 * 4 * 2 + 8},
      {MaxPooling2D(), {-1, 9, 8, 3}, {-1, 4, 4, 3}, 0},
      {MaxPooling2D(3, {.strides = 2, .padding = "same"}), {-1, 9, 8, 3}, {-1, 5, 4, 3}, 0},
      {AveragePooling2D({2, 3}), {-1, 9, 9, 3}, {-1, 4, 3, 3}, 0},
      {GlobalAveragePooling2D(), {-1, 4, 5, 6}, {-1, 6}, 0},
      {GlobalMaxPooling2D({.keepdims = true}), {-1, 4, 5, 6}, {-1, 1, 1, 6}, 0},
      {BatchNormalization(), {-1, 4, 5, 6}, {-1, 4, 5, 6}, 4 * 6},
      {BatchNormalization({.center = false, .scale = false}), {-1, 6}, {-1, 6}, 2 * 6},
      {LayerNormalization(), {-1, 5, 6}, {-1, 5, 6}, 2 * 6},
      {LayerNormalization({.scale = false}), {-1, 6}, {-1, 6}, 6},
      {Dropout(0.5), {-1, 3}, {-1, 3}, 0},
      {Flatten(), {-1, 3, 4, 5}, {-1, 60}, 0},
      {Flatten(), {-1}, {-1, 1}, 0},
      {layers::Reshape({6, 2}), {-1, 3, 4}, {-1, 6, 2}, 0},
      {layers::Reshape({2, -1, 3}), {-1, 24}, {-1, 2, 4, 3}, 0},
      {Activation("tanh"), {-1, 3}, {-1, 3}, 0},
      {ReLU(), {-1, 3, 3}, {-1, 3, 3}, 0},
      {Softmax(), {-1, 3}, {-1, 3}, 0},
      {Rescaling(1.0 / 255, -1.0), {-1, 4, 4, 1}, {-1, 4, 4, 1}, 0},
      {ZeroPadding2D({1, 2}), {-1, 4, 5, 3}, {-1, 6, 9, 3}, 0},
      {Embedding(11, 4), {-1, 7}, {-1, 7, 4}, 44},
      {PositionEmbedding(9), {-1, 7, 4}, {-1, 7, 4}, 36},
      {MultiHeadAttention(2, 3), {-1, 7, 4}, {-1, 7, 4}, 3 * (4 * 6 + 6) + 6 * 4 + 4},
      {Lambda([](const Tensor& x) { return reduce_sum(x, {.axis = Dims{-1}}); }),
       {-1, 4, 5},
       {-1, 4},
       0},
      {Stack({Conv2D(6, 5, {.padding = "same"}), MaxPooling2D(), Flatten(), Dense(10)}),
       {-1, 8, 8, 1},
       {-1, 10},
       156 + 4 * 4 * 6 * 10 + 10},
  };
}

TEST(Layers, InferredShapesEqualThoseOfCalls) {
  random::set_seed(1);
  for (const Case& c : single_input_cases()) {
    SCOPED_TRACE(c.layer.base().kind() + " of " + c.input.to_string());
    EXPECT_EQ(infer(c.layer, c.input), c.output);
    Shape concrete = c.input;
    concrete.set(0, 2);
    const Tensor x = random_tensor(concrete, 7, 0.0, 2.0, float32);
    Shape expected = c.output;
    expected.set(0, 2);
    EXPECT_EQ(c.layer(x).shape(), expected);
    EXPECT_EQ(c.layer(x, {.training = true}).shape(), expected);
    EXPECT_EQ(infer(c.layer, c.input), c.output);
    EXPECT_EQ(count_params(c.layer.variables()), c.parameters);
  }
}

TEST(Layers, BuildingCreatesTheSameVariablesAsCalling) {
  for (const Case& c : single_input_cases()) {
    build(c.layer, c.input);
    EXPECT_TRUE(c.layer.base().built());
    EXPECT_EQ(c.layer.count_params(), c.parameters) << c.layer.base().kind();
  }
}

TEST(Layers, UnknownSizesPassThrough) {
  EXPECT_EQ(infer(layers::Conv2D(3, 3), {-1, -1, 8, 1}), (Shape{-1, -1, 6, 3}));
  EXPECT_EQ(infer(layers::Flatten(), {-1, -1, 8}), (Shape{-1, -1}));
  EXPECT_EQ(infer(layers::MaxPooling2D(), {-1, -1, 8, 1}), (Shape{-1, -1, 4, 1}));
}

TEST(Layers, ShapeErrorsNameTheLayerAndTheInput) {
  using namespace layers;
  const auto refused = [](const tandem::Layer& layer, const Shape& shape, const std::string& text) {
    expect_error<InvalidArgumentError>([&] { infer(layer, shape); }, text);
    expect_error<InvalidArgumentError>([&] { build(layer, shape); }, text);
  };
  refused(Dense(3), {-1}, "[dense] expected an input of shape (batch, ..., features), got (?,)");
  refused(Conv2D(3, 3, {.name = "first"}), {-1, 8, 8},
          "[first] expected an input of shape (batch, height, width, channels), got (?, 8, 8)");
  refused(Conv2D(3, 5), {-1, 4, 8, 1},
          "[conv2d] expected an image of at least 5 x 5, got (?, 4, 8, 1)");
  refused(Conv2D(4, 3, {.groups = 2}), {-1, 8, 8, 3},
          "[conv2d] expected a number of channels divisible by 2 groups, got (?, 8, 8, 3)");
  refused(MaxPooling2D(), {-1, 1, 8, 1},
          "[max_pooling2d] expected an image of at least 2 x 2, got (?, 1, 8, 1)");
  refused(GlobalAveragePooling2D(), {-1, 8},
          "[global_average_pooling2d] expected an input of shape (batch, height");
  refused(layers::Reshape({4, 2}), {-1, 7},
          "[reshape] expected an example that fits the target shape (4, 2), got (?, 7)");
  refused(BatchNormalization(), {-1},
          "[batch_normalization] expected an input of shape (batch, ..., channels)");
}

TEST(Layers, BuiltLayersRefuseOtherShapes) {
  using namespace layers;
  const auto refused = [](const tandem::Layer& layer, const Shape& first, const Shape& second,
                          const std::string& text) {
    layer(random_tensor(first, 1, 0.0, 1.0, float32));
    expect_error<InvalidArgumentError>([&] { layer(random_tensor(second, 1, 0.0, 1.0, float32)); },
                                       text);
  };
  refused(Dense(3), {2, 5}, {2, 6},
          "[dense] expected an input whose last axis has 5 elements, got (2, 6)");
  refused(Conv2D(3, 3), {2, 5, 5, 2}, {2, 5, 5, 3},
          "[conv2d] expected an input of 2 channels, got (2, 5, 5, 3)");
  refused(LayerNormalization(), {2, 5}, {2, 6},
          "[layer_normalization] expected an input whose last axis has 5 elements");
  refused(Stack({Flatten(), Dense(3, {.name = "head"})}), {2, 2, 2}, {2, 2, 3},
          "[head] expected an input whose last axis has 4 elements, got (2, 6)");
  const tandem::Layer declared = Dense(3, {.input_shape = {5}});
  expect_error<InvalidArgumentError>(
      [&] {
        build(declared, {-1, 4});
      },
      "[dense] expected an input of shape (?, 5), got (?, 4)");
  expect_error<InvalidArgumentError>(
      [&] {
        build(Dense(3), {-1, -1});
      },
      "[dense] expected a known number of features");
}

TEST(Layers, BadOptionsAreRefusedAtOnce) {
  using namespace layers;
  const auto refused = [](const auto& make, const std::string& text) {
    expect_error<InvalidArgumentError>(make, text);
  };
  refused([] { Dense(0); }, "[dense] expected a positive number of units, got 0");
  refused([] { Dense(3, {.activation = "rleu"}); }, "rleu");
  refused([] { Conv2D(3, 3, {.padding = "sane"}); }, "sane");
  refused([] { Conv2D(3, 0); }, "[conv2d] expected a positive kernel size, got 0 x 0");
  refused([] { Conv2D(3, 3, {.groups = 2}); },
          "[conv2d] expected filters divisible by groups, got 3 and 2");
  refused([] { Dropout(1.0); }, "[dropout] expected a rate in [0, 1), got 1");
  refused([] { layers::Reshape({-1, -1}); }, "[reshape] expected sizes of which at most one is -1");
  refused([] { BatchNormalization({.momentum = 1.5}); },
          "[batch_normalization] expected a momentum in [0, 1], got 1.5");
  refused([] { Stack({}); }, "[sequential] expected at least one layer");
  refused([] { Embedding(0, 3); }, "[embedding] expected positive sizes");
  expect_error<FailedPreconditionError>([] { tandem::Layer().name(); }, "[Layer]");
}

// --- values ---

TEST(Layers, DenseIsAMatrixProductWithBias) {
  const Layer layer =
      layers::Dense(2, {.activation = "relu", .bias_initializer = initializers::constant(0.5)});
  const Tensor x = random_tensor({3, 4}, 2, -1.0, 1.0, float32);
  const Tensor y = layer(x);
  const auto kernel = values_of(layer.variables()[0]);
  const auto in = values_of(x);
  std::vector<double> expected;
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t unit = 0; unit < 2; ++unit) {
      double sum = 0.5;
      for (std::size_t k = 0; k < 4; ++k) sum += in[row * 4 + k] * kernel[k * 2 + unit];
      expected.push_back(std::max(sum, 0.0));
    }
  expect_tensor(y, float32, {3, 2}, expected, 1e-6);
}

TEST(Layers, DropoutDropsOnlyInTraining) {
  random::set_seed(1);
  const Layer layer = layers::Dropout(0.25);
  const Tensor x = full({200, 50}, 3.0);
  EXPECT_EQ(values_of(layer(x)), values_of(x));
  int dropped = 0;
  for (double v : values_of(layer(x, {.training = true}))) {
    dropped += v == 0.0;
    EXPECT_TRUE(v == 0.0 || std::abs(v - 4.0) < 1e-6) << v;
  }
  EXPECT_NEAR(dropped, 2500, 150);
}

int zeros_in(const Tensor& x) {
  const auto values = values_of(x);
  return static_cast<int>(std::count(values.begin(), values.end(), 0.0));
}

// A layer that passes no options on, as a PyTorch module does not.
class Dropping final : public LayerBase {
 public:
  Dropping() : LayerBase("") {}
  std::string kind() const override { return "dropping"; }
  std::vector<Layer> children() const override { return {drop_}; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions&) override {
    return drop_(inputs[0]);
  }
  Shape output_shape(std::span<const Shape> shapes) const override { return shapes[0]; }

 private:
  Layer drop_ = layers::Dropout(0.5);
};

TEST(Layers, InnerCallsHaveTheOptionsOfTheEnclosingCall) {
  const Layer layer(std::make_shared<Dropping>());
  const Tensor x = ones({20, 20});
  EXPECT_EQ(zeros_in(layer(x)), 0);
  EXPECT_GT(zeros_in(layer(x, true)), 0);
  layer.train();
  EXPECT_GT(zeros_in(layer(x)), 0);
  EXPECT_EQ(zeros_in(layer(x, false)), 0);
  EXPECT_GT(zeros_in(layer.base().children()[0](x)), 0);
  layer.eval();
  EXPECT_EQ(zeros_in(layer(x)), 0);
}

TEST(Layers, FunctionsFollowTrainAndEval) {
  const Layer layer(std::make_shared<Dropping>());
  const auto call = function([&](const Tensor& x) { return layer(x); });
  const auto call_inside = function([&](const Tensor& x) {
    layer.train();
    return layer(x);
  });
  const Tensor x = ones({20, 20});
  for (const bool training : {false, true, true, false, true}) {
    layer.train(training);
    EXPECT_EQ(zeros_in(call(x)) > 0, training);
  }
  EXPECT_EQ(call.num_traces(), 2u);
  for (int i = 0; i < 2; ++i) {
    layer.eval();
    EXPECT_GT(zeros_in(call_inside(x)), 0);
  }
  EXPECT_EQ(call_inside.num_traces(), 1u);
}

TEST(Layers, RescalingTakesUint8Images) {
  const Tensor pixels = constant({0, 51, 255}, {.dtype = uint8, .shape = {1, 3}});
  expect_tensor(layers::Rescaling(1.0 / 255.0, -0.5)(pixels), float32, {1, 3}, {-0.5, -0.3, 0.5},
                1e-6);
}

TEST(Layers, EmbeddingTakesRowsOfItsTable) {
  const Layer layer = layers::Embedding(5, 2);
  const Tensor y = layer(constant({{4, 0}}, {.dtype = int64}));
  const auto table = values_of(layer.variables()[0]);
  expect_tensor(y, float32, {1, 2, 2}, {table[8], table[9], table[0], table[1]});
}

TEST(Layers, MergingLayersNeedEqualShapes) {
  const Tensor a = constant({{1.0, 2.0}}), b = constant({{3.0, 5.0}});
  const std::vector<Tensor> two{a, b}, three{a, b, b};
  expect_tensor(layers::Add()(three), float32, {1, 2}, {7, 12});
  expect_tensor(layers::Multiply()(two), float32, {1, 2}, {3, 10});
  expect_tensor(layers::Concatenate()(two), float32, {1, 4}, {1, 2, 3, 5});
  const std::vector<Tensor> unequal{a, constant({{1.0}})};
  expect_error<InvalidArgumentError>([&] { layers::Add()(unequal); },
                                     "[add] expected inputs of one shape, got (1, 2) and (1, 1)");
  expect_error<InvalidArgumentError>([&] { layers::Add()(a); },
                                     "[add] expected two or more inputs, got 1");
  expect_error<InvalidArgumentError>([&] { layers::Concatenate({.axis = 0})(two); },
                                     "[concatenate] expected inputs with an axis 0");
  expect_error<InvalidArgumentError>([&] { layers::Dense(2)(two); },
                                     "[dense] expected one input, got 2");
  const std::vector<Shape> shapes{{-1, 4, 3}, {-1, 4, 5}};
  EXPECT_EQ(layers::Concatenate().base().output_shape(shapes), (Shape{-1, 4, 8}));
  expect_error<InvalidArgumentError>(
      [&] { layers::Concatenate({.axis = 1}).base().output_shape(shapes); },
      "[concatenate] expected inputs that differ only along the concatenated axis");
}

TEST(Layers, BatchNormalizationFollowsTheBatchesMoments) {
  const Layer layer = layers::BatchNormalization({.momentum = 0.75, .epsilon = 0.01});
  const Tensor x = constant({{1.0, 2.0}, {3.0, 6.0}});  // means 2, 4; variances 1, 4
  const double a = 1.0 / std::sqrt(1.01), b = 2.0 / std::sqrt(4.01);
  expect_tensor(layer(x, {.training = true}), float32, {2, 2}, {-a, -b, a, b}, 1e-5);
  const auto moving = layer.non_trainable_variables();
  ASSERT_EQ(names_of(moving), (std::vector<std::string>{"batch_normalization/moving_mean",
                                                        "batch_normalization/moving_variance"}));
  expect_tensor(moving[0], float32, {2}, {0.5, 1.0}, 1e-6);
  expect_tensor(moving[1], float32, {2}, {1.0, 1.75}, 1e-6);
  EXPECT_EQ(moving[0].synchronization(), VariableSynchronization::kOnRead);
  EXPECT_EQ(moving[0].aggregation(), VariableAggregation::kMean);
  const double c = 1.0 / std::sqrt(1.01), d = 1.0 / std::sqrt(1.76);
  expect_tensor(layer(x), float32, {2, 2}, {0.5 * c, d, 2.5 * c, 5.0 * d}, 1e-5);
}

TEST(Layers, AFrozenBatchNormalizationKeepsItsMoments) {
  const Layer layer = layers::BatchNormalization();
  layer.base().set_trainable(false);
  layer(constant({{1.0}, {3.0}}), {.training = true});
  expect_tensor(layer.variables()[2], float32, {1}, {0.0});
  EXPECT_TRUE(layer.trainable_variables().empty());
  EXPECT_EQ(layer.non_trainable_variables().size(), 4u);
}

// --- names and nesting ---

Layer nested() {
  using namespace layers;
  return Stack({Dense(4), Stack({Dense(3), Dense(3), Dropout(0.1)}, {.name = "block"}), Dense(2),
                Dense(1, {.name = "dense_1"})});
}

TEST(Layers, NamesAreUniqueAmongSiblingsAndTheSameForTheSameArchitecture) {
  const Layer one = nested(), two = nested();
  build(one, {-1, 5});
  build(two, {-1, 5});
  const std::vector<std::string> expected{
      "dense/kernel",         "dense/bias",         "block/dense/kernel", "block/dense/bias",
      "block/dense_1/kernel", "block/dense_1/bias", "dense_2/kernel",     "dense_2/bias",
      "dense_1/kernel",       "dense_1/bias"};
  EXPECT_EQ(names_of(one.variables()), expected);
  EXPECT_EQ(names_of(two.variables()), expected);
}

TEST(Layers, TwoLayersOfOneNameAreRefused) {
  expect_error<InvalidArgumentError>(
      [] {
        layers::Stack({layers::Dense(1, {.name = "a"}), layers::Dense(1, {.name = "a"})});
      },
      "[sequential] expected layers with unique names, got two named 'a'");
}

TEST(Layers, ALayerUsedTwiceSharesItsVariables) {
  const Layer shared = layers::Dense(3);
  const Layer stack = layers::Stack({shared, layers::ReLU(), shared});
  build(stack, {-1, 3});
  EXPECT_EQ(stack.variables().size(), 2u);
}

TEST(Layers, AStackDeclaresTheShapeOfItsFirstLayer) {
  const Layer stack = layers::Stack({layers::Flatten({.input_shape = {2, 3}}), layers::Dense(1)});
  EXPECT_EQ(stack.base().declared_input_shape(), (Shape{2, 3}));
}

TEST(Layers, FreezingALayerFreezesItsChildren) {
  const Layer stack = nested();
  build(stack, {-1, 5});
  EXPECT_EQ(stack.trainable_variables().size(), 10u);
  stack.base().children()[1].base().set_trainable(false);
  EXPECT_EQ(stack.trainable_variables().size(), 6u);
  EXPECT_EQ(stack.non_trainable_variables().size(), 4u);
  EXPECT_EQ(stack.variables().size(), 10u);
}

// A user's layer that contains layers and a variable and does not override build().
class Residual final : public LayerBase {
 public:
  Residual() : LayerBase("") {}
  std::string kind() const override { return "residual"; }
  std::vector<Layer> children() const override { return {first_, second_}; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override {
    return inputs[0] + second_(first_(inputs[0], options), options);
  }
  Shape output_shape(std::span<const Shape> shapes) const override { return shapes[0]; }

 private:
  Layer first_ = layers::Dense(8);
  Layer second_ = layers::Dense(4);
};

// A missing gamma or beta is that of a layer whose variables are untouched, in every dtype.
TEST(Layers, NormalizationsWithoutAVariableComputeInTheirDType) {
  const Tensor x = random_tensor({4, 3}, 1);
  for (const char* policy : {"float32", "float64", "float16", "bfloat16", "mixed_bfloat16"})
    for (const bool scale : {false, true})
      for (const bool center : {false, true})
        for (const bool training : {false, true}) {
          SCOPED_TRACE(std::string(policy) + (scale ? " scale" : "") + (center ? " center" : ""));
          const auto compare = [&](const auto& make) {
            const Layer part = make(scale, center), whole = make(true, true);
            for (const Layer& layer : {part, whole})
              layer.base().set_dtype_policy(DTypePolicy(policy));
            const Tensor mine = part(x, {.training = training});
            expect_tensor(mine, DTypePolicy(policy).compute_dtype(), x.shape(),
                          values_of(whole(x, {.training = training})), 0.0);
          };
          compare(
              [](bool s, bool c) { return layers::BatchNormalization({.center = c, .scale = s}); });
          compare(
              [](bool s, bool c) { return layers::LayerNormalization({.center = c, .scale = s}); });
        }
}

// A layer whose call runs a function, which reads the layer's weight.
class Scaled final : public LayerBase {
 public:
  Scaled() : LayerBase("scaled") {}
  std::string kind() const override { return "scaled"; }
  bool casts_inputs() const override { return false; }
  void build(std::span<const Shape>) override {
    weight = add_weight("w", {}, initializers::ones());
  }
  Tensor call(std::span<const Tensor> inputs, const CallOptions&) override {
    return times(inputs[0]);
  }
  Shape output_shape(std::span<const Shape> shapes) const override { return shapes[0]; }

  Variable weight;
  std::function<Tensor(const Tensor&)> times = function([this](const Tensor& x) {
    return cast(weight.value(), x.dtype()) * x + cast(weight.value() * (1.0 / 3.0), x.dtype());
  });
};

TEST(Layers, AFunctionInALayerIsTracedForItsPolicy) {
  const auto layer = std::make_shared<Scaled>();
  layer->set_dtype_policy(DTypePolicy("mixed_bfloat16"));
  const Layer handle = layer;
  const Tensor x = ones({1});
  // The third is rounded to bfloat16 in the layer, and not outside of it.
  const auto inside = [&] { return values_of(handle(x))[0]; };
  const auto outside = [&] { return values_of(layer->times(x))[0]; };
  const double rounded = inside();
  EXPECT_NE(rounded, outside());
  EXPECT_EQ(inside(), rounded);
  EXPECT_NEAR(outside(), 4.0 / 3.0, 1e-7);
}

// A layer whose call runs a function, which calls a layer without options.
class Noisy final : public LayerBase {
 public:
  Noisy() : LayerBase("noisy") {}
  std::string kind() const override { return "noisy"; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions&) override {
    return noise(inputs[0]);
  }
  Shape output_shape(std::span<const Shape> shapes) const override { return shapes[0]; }

  Layer dropout = layers::Dropout(0.5);
  std::function<Tensor(const Tensor&)> noise =
      function([this](const Tensor& x) { return dropout(x); });
};

TEST(Layers, AFunctionInALayerIsTracedForItsOptions) {
  const Layer layer = std::make_shared<Noisy>();
  const Tensor x = ones({64});
  const std::vector<double> all = values_of(x);
  EXPECT_NE(values_of(layer(x, {.training = true})), all);
  EXPECT_EQ(values_of(layer(x, {.training = false})), all);
  EXPECT_NE(values_of(layer(x, {.training = true})), all);
}

TEST(Layers, AUsersLayerBuildsItsChildren) {
  const Layer alone = std::make_shared<Residual>();
  build(alone, {-1, 4});
  EXPECT_EQ(
      names_of(alone.variables()),
      (std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}));
  const Layer stack = layers::Stack({std::make_shared<Residual>(), std::make_shared<Residual>()});
  build(stack, {-1, 4});
  EXPECT_EQ(stack.variables().size(), 8u);
  EXPECT_EQ(stack.variables()[4].name(), "residual_1/dense/kernel");
}

TEST(Layers, AFailedBuildLeavesNoVariables) {
  class Moody final : public LayerBase {
   public:
    Moody() : LayerBase("moody") {}
    std::string kind() const override { return "moody"; }
    void build(std::span<const Shape> shapes) override {
      add_weight("w", {2}, initializers::zeros());
      if (shapes[0][1] != 2) throw InvalidArgumentError("[moody] not today");
    }
    Tensor call(std::span<const Tensor> inputs, const CallOptions&) override { return inputs[0]; }
    Shape output_shape(std::span<const Shape> shapes) const override { return shapes[0]; }
  };
  const Layer layer = std::make_shared<Moody>();
  expect_error<InvalidArgumentError>([&] { build(layer, {-1, 3}); }, "not today");
  EXPECT_FALSE(layer.base().built());
  build(layer, {-1, 2});
  EXPECT_EQ(layer.variables().size(), 1u);
}

TEST(Layers, KnownModelsHaveTheKnownNumberOfParameters) {
  using namespace layers;
  const tandem::Layer lenet =
      Stack({Conv2D(6, 5, {.padding = "same", .activation = "tanh"}), AveragePooling2D(),
             Conv2D(16, 5, {.activation = "tanh"}), AveragePooling2D(), Flatten(), Dense(120),
             Dense(84), Dense(10)});
  build(lenet, {-1, 28, 28, 1});
  EXPECT_EQ(count_params(lenet.variables()),
            61'706);  // LeCun et al. 1998, without the trainable pooling
  const tandem::Layer mlp = Stack({Dense(512), Dense(512), Dense(10)});
  build(mlp, {-1, 784});
  EXPECT_EQ(count_params(mlp.variables()), 669'706);
}

TEST(Layers, ATypeIsDeclaredAndAssigned) {
  layers::Dense dense(4, {.activation = "relu"});
  layers::Dense later;
  EXPECT_FALSE(later.defined());
  later = dense;
  EXPECT_EQ(later.shared(), dense.shared());
}

TEST(Options, TheSizeOfWindowsMayBeAnOption) {
  const Tensor x = random_tensor({1, 4, 6, 2}, 1, -1, 1, float32);
  const auto expected = values_of(layers::MaxPooling2D({2, 3})(x));
  EXPECT_EQ(values_of(layers::MaxPooling2D({.pool_size = {2, 3}})(x)), expected);
  EXPECT_EQ(values_of(layers::MaxPooling2D({.strides = {2, 2}})(x)),
            values_of(layers::MaxPooling2D(2)(x)));
  EXPECT_EQ(values_of(layers::AveragePooling2D({.pool_size = 3})(x)),
            values_of(layers::AveragePooling2D(3)(x)));
  expect_error<InvalidArgumentError>([] { layers::MaxPooling2D(2, {.pool_size = 3}); },
                                     "[max_pooling2d] expected one size of windows");
}

TEST(Options, AnActivationMayBeAFunction) {
  using layers::ActivationName;
  EXPECT_EQ(ActivationName(nn::relu), "relu");
  EXPECT_EQ(ActivationName(nn::softmax), "softmax");
  EXPECT_EQ(ActivationName(tandem::tanh), "tanh");
  EXPECT_EQ(ActivationName(nn::gelu), "gelu");
  EXPECT_EQ(ActivationName(nn::elu), "elu");
  EXPECT_EQ(layers::DenseOptions{.activation = "relu"}.activation, "relu");
  expect_error<InvalidArgumentError>([] { ActivationName name(tandem::erf); }, "[activation]");
}

}  // namespace
}  // namespace tandem::layers_test
