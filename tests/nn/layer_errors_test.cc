// Errors of operations inside a layer name the layer, wherever it is called.
#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/model.h"

namespace tandem::layer_errors_test {
namespace {

using testing::expect_error;

constexpr const char* kFromBytes =
    "[dense_1] expected a floating dtype, got uint8; the layer was called with an input of shape "
    "(2, 4) and dtype uint8; the layer's variables are float32: cast the input, td::cast(x, "
    "td::float32)";

Sequential two_layers() {
  return Sequential({layers::Dense(4, {.input_shape = {4}}), layers::Dense(3)});
}

TEST(LayerErrors, NameTheLayerAndItsInput) {
  const Sequential model = two_layers();
  const Tensor bytes = cast(ones({2, 4}), uint8);
  const Layer second = model.get_layer(1);
  expect_error<InvalidArgumentError>([&] { second(bytes); }, kFromBytes);
  // An error that names a kernel would not name the layer.
  try {
    second(bytes);
  } catch (const InvalidArgumentError& error) {
    EXPECT_EQ(std::string(error.what()).find("MatMul"), std::string::npos) << error.what();
  }
  // As in Keras, floating inputs are cast to the dtype in which the layer computes.
  EXPECT_EQ(model(cast(ones({2, 4}), bfloat16)).dtype(), float32);
}

TEST(LayerErrors, GuessThatImagesAreChannelsFirst) {
  const Sequential model({layers::Conv2D(4, 3, {.input_shape = {8, 9, 3}})});
  const char* advice = "td::transpose(x, {0, 2, 3, 1})";
  expect_error<InvalidArgumentError>([&] { model(ones({2, 3, 8, 9})); }, advice);
  expect_error<InvalidArgumentError>([&] { model.get_layer(0)(ones({2, 3, 8, 9})); }, advice);
  try {
    model(ones({2, 4, 8, 9}));
    ADD_FAILURE() << "expected an error";
  } catch (const InvalidArgumentError& error) {
    EXPECT_EQ(std::string(error.what()).find("channels-first"), std::string::npos) << error.what();
  }
}

TEST(LayerErrors, AreTheSameInATraceAndInAFunctionalModel) {
  const Sequential model = two_layers();
  const Layer second = model.get_layer(1);
  const Tensor bytes = cast(ones({2, 4}), uint8);
  const auto traced = function([&](const Tensor& x) { return second(x); });
  expect_error<InvalidArgumentError>([&] { traced(bytes); }, kFromBytes);

  const SymbolicInput a = Input({4});
  const Functional functional(
      {a}, layers::Dense(2, {.name = "head"})(layers::Dense(4, {.name = "body"})(a)));
  expect_error<InvalidArgumentError>([&] { functional(bytes); },
                                     "[body] expected a floating dtype, got uint8");
}

TEST(LayerErrors, NameThePathOfANestedLayer) {
  const Layer block =
      layers::Stack({layers::Dense(4), layers::Dense(4)}, {.input_shape = {4}, .name = "block"});
  Sequential model({block, layers::Dense(3)});
  expect_error<InvalidArgumentError>(
      [&] {
        model(ones({2, 5}));
      },
      "[block/dense] expected an input whose last axis has 4");
  expect_error<InvalidArgumentError>(
      [&] {
        block.base().children()[1](cast(ones({2, 4}), uint8));
      },
      "[block/dense_1] expected a floating dtype");
}

TEST(LayerErrors, NameTheOperationIfTheUserCalledIt) {
  Sequential model({layers::Lambda(
      [](const Tensor& x) {
        return matmul(x, x.rank() == 2 && x.dim(0) == 2 ? x : ones({4, 4}));
      },
      {.input_shape = {4}, .name = "mine"})});
  expect_error<InvalidArgumentError>(
      [&] {
        model(ones({2, 4}));
      },
      "[mine] [MatMul] expected equal inner sizes, got 4 and 2 (shapes (2, 4) and (2, 4)); the "
      "layer was called with an input of shape (2, 4) and dtype float32");
}

TEST(LayerErrors, PassThroughFit) {
  Sequential model = two_layers();
  model.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(cast(ones({2, 4}), uint8), ones({2, 3}), {.verbose = 0});
      },
      "[dense] expected a floating dtype, got uint8");
}

TEST(ForgottenBatch, TheErrorSuggestsBatch) {
  Sequential model = two_layers();
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const auto examples = data::Dataset::from_tensor_slices({ones({6, 4}), ones({6, 3})});
  expect_error<InvalidArgumentError>([&] { model.fit(examples, {.verbose = 0}); },
                                     "[fit] expected batches of inputs, shape (?, 4), got shape "
                                     "(4,), which is one example; batch() "
                                     "the dataset");
  expect_error<InvalidArgumentError>([&] { model.predict(examples); }, "batch() the dataset");
  Sequential unbuilt({layers::Dense(3)});
  unbuilt.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<InvalidArgumentError>(
      [&] { unbuilt.fit(examples, {.verbose = 0}); },
      "differ in their first axis: shapes (4,) and (3,); if these are single examples, batch() the "
      "dataset");
}

}  // namespace
}  // namespace tandem::layer_errors_test
