// check_numerics: names the first operation that produces NaN or infinity.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/debugging.h"
#include "tandem/device.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::check_numerics_test {
namespace {

using debugging::CheckNumericsScope;
using testing::expect_error;
using testing::values_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Sequential with_log(bool run_eagerly) {
  Sequential model(
      {layers::Dense(2, {.kernel_initializer = "zeros", .input_shape = {2}}),
       layers::Lambda([](const Tensor& x) { return log(x) * 0.0 + x; }, {.name = "logarithm"}),
       layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = run_eagerly});
  return model;
}

TEST(CheckNumerics, IsOffUnlessEnabled) {
  EXPECT_FALSE(debugging::check_numerics_enabled());
  {
    const CheckNumericsScope scope;
    EXPECT_TRUE(debugging::check_numerics_enabled());
    debugging::disable_check_numerics();
  }
  EXPECT_FALSE(debugging::check_numerics_enabled());
  EXPECT_EQ(values_of(log(zeros({1})))[0], -kInfinity);
}

class CheckNumericsOfFit : public ::testing::TestWithParam<bool> {};

TEST_P(CheckNumericsOfFit, NamesTheLayerOfTheForwardPass) {
  const DeviceScope cpu("/cpu:0");
  Sequential model = with_log(GetParam());
  const Tensor x = ones({4, 2}), y = ones({4, 1});
  model.fit(x, y, {.verbose = 0});  // no error
  model = with_log(GetParam());
  const CheckNumericsScope scope;
  expect_error<InvalidArgumentError>(
      [&] { model.fit(x, y, {.verbose = 0}); },
      "[check_numerics] operation Log of layer 'logarithm' (forward pass) gave 8 infinite of 8 "
      "elements (shape (4, 2), dtype float32); all of its inputs are finite");
}

TEST_P(CheckNumericsOfFit, NamesTheLayerOfTheBackwardPass) {
  const DeviceScope cpu("/cpu:0");
  Sequential model({layers::Dense(2, {.kernel_initializer = "zeros", .input_shape = {2}}),
                    layers::Lambda([](const Tensor& x) { return sqrt(x); }, {.name = "root"}),
                    layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = GetParam()});
  const CheckNumericsScope scope;
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(ones({4, 2}), ones({4, 1}), {.verbose = 0});
      },
      "(backward pass: the gradient of Sqrt of layer 'root') gave");
}

TEST_P(CheckNumericsOfFit, NamesTheDataAsTheSource) {
  const DeviceScope cpu("/cpu:0");
  Sequential model = with_log(GetParam());
  const CheckNumericsScope scope;
  const Tensor x = constant({{kNan, 1.0F}, {1.0F, 1.0F}});
  expect_error<InvalidArgumentError>(
      [&] {
        model.fit(x, ones({2, 1}), {.verbose = 0, .shuffle = false});
      },
      " of shape (2, 2) has 1 NaN already: from the data, a variable or a constant");
}

INSTANTIATE_TEST_SUITE_P(Steps, CheckNumericsOfFit, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Eager") : std::string("Traced");
});

TEST(CheckNumerics, FunctionsAreRetraced) {
  const DeviceScope cpu("/cpu:0");
  const auto traced = function([](const Tensor& x) { return sqrt(x) + 1.0; });
  const Tensor bad = constant({-1.0F, 4.0F});
  EXPECT_TRUE(std::isnan(values_of(traced(bad))[0]));
  {
    const CheckNumericsScope scope;
    expect_error<InvalidArgumentError>([&] { traced(bad); },
                                       "[check_numerics] operation Sqrt (outside of layers and "
                                       "backward passes) gave 1 NaN of 2 elements");
    EXPECT_EQ(values_of(traced(constant({9.0F, 4.0F}))), (std::vector<double>{4, 3}));
  }
  EXPECT_TRUE(std::isnan(values_of(traced(bad))[0]));
}

TEST(CheckNumerics, TrainsToTheSameBits) {
  const auto train = [](bool checked) {
    random::set_seed(3);
    Sequential model({layers::Dense(8, {.activation = "relu", .input_shape = {4}}),
                      layers::BatchNormalization(), layers::Dropout(0.2), layers::Dense(2)});
    model.compile({.optimizer = "adam", .loss = "mse"});
    std::optional<CheckNumericsScope> scope;
    if (checked) scope.emplace();
    const Tensor x = testing::random_tensor({20, 4}, 1, -1.0, 1.0, float32);
    return model.fit(x, slice(x, {0, 0}, {20, 2}), {.epochs = 2, .batch_size = 8, .verbose = 0})
        .at("loss");
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(CheckNumerics, AllowsInfinitiesInMasks) {
  const DeviceScope cpu("/cpu:0");
  const CheckNumericsScope scope;
  const Tensor mask = constant({0.0F, -kInfinity});
  EXPECT_EQ(values_of(nn::softmax(ones({2}) + mask)), (std::vector<double>{1, 0}));
  expect_error<InvalidArgumentError>([&] { return mask - mask; }, "gave 1 NaN of 2 elements");
}

}  // namespace
}  // namespace tandem::check_numerics_test
