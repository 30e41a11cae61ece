// Normalization of each example, against plain loops in double.
#include "tandem/normalization_modules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::normalization_modules_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Values = std::vector<double>;

// Normalizes each group of `count` consecutive elements: to zero mean and unit variance if
// `centers`, else by the root mean square.
Values normalized(const Values& x, std::size_t count, double eps, bool centers) {
  Values y = x;
  for (std::size_t first = 0; first < x.size(); first += count) {
    double mean = 0.0, squares = 0.0;
    for (std::size_t i = first; centers && i < first + count; ++i) mean += x[i];
    mean /= static_cast<double>(count);
    for (std::size_t i = first; i < first + count; ++i) squares += (x[i] - mean) * (x[i] - mean);
    for (std::size_t i = first; i < first + count; ++i)
      y[i] = (x[i] - mean) / std::sqrt(squares / static_cast<double>(count) + eps);
  }
  return y;
}

TEST(GroupNorm, NormalizesGroupsOfChannels) {
  const Tensor x = random_tensor({2, 6, 3, 2}, 1), weight = random_tensor({6}, 2),
               bias = random_tensor({6}, 3);
  Values expected = normalized(values_of(x), 2 * 6, 1e-3, true);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t channel = i / 6 % 6;
    expected[i] = expected[i] * values_of(weight)[channel] + values_of(bias)[channel];
  }
  expect_tensor(F::group_norm(x, 3, weight, bias, 1e-3), float64, x.shape(), expected, 1e-12);
  expect_gradients(
      [](const std::vector<Tensor>& in) { return F::group_norm(in[0], 3, in[1], in[2], 1e-3); },
      {x, weight, bias});
  expect_second_order([](const std::vector<Tensor>& in) { return square(F::group_norm(in[0], 2)); },
                      {random_tensor({1, 4, 2})});
  const auto traced = function([](const Tensor& in) { return F::group_norm(in, 3); },
                               {.input_signature = {{Shape{-1, 6, -1}, float64}}});
  const Tensor sequence = random_tensor({2, 6, 5});
  EXPECT_EQ(values_of(traced(sequence)), values_of(F::group_norm(sequence, 3)));
  expect_error<ShapeError>([&] { static_cast<void>(F::group_norm(x, 4)); },
                           "[group_norm] expected a number of channels that 4 groups divide");
}

TEST(InstanceNorm, NormalizesEachChannel) {
  const Tensor x = random_tensor({2, 3, 4, 2});
  expect_tensor(F::instance_norm(x, {}, {}, 1e-2), float64, x.shape(),
                normalized(values_of(x), 8, 1e-2, true), 1e-12);
  expect_error<ShapeError>(
      [] {
        static_cast<void>(F::instance_norm(zeros({2, 3})));
      },
      "[instance_norm] expected an input (batch, channels, ...) with further axes");
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const Tensor x = random_tensor({3, 2, 4}), weight = random_tensor({2, 4}, 2);
  Values expected = normalized(values_of(x), 8, 1e-3, false);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= values_of(weight)[i % 8];
  expect_tensor(F::rms_norm(x, {2, 4}, weight, 1e-3), float64, x.shape(), expected, 1e-12);
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return F::rms_norm(in[0], {2, 4}, in[1]);
      },
      {x, weight});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::rms_norm(x, {3, 4}));
      },
      "[rms_norm] expected an input whose last axes are (3, 4)");
  EXPECT_EQ(F::rms_norm(cast(x, bfloat16), {4}).dtype(), bfloat16);
}

TEST(LocalResponseNorm, TakesChannelsAround) {
  const Tensor x = random_tensor({1, 5, 3});
  const Values in = values_of(x);
  Values expected;
  for (std::int64_t channel = 0; channel < 5; ++channel)
    for (std::int64_t i = 0; i < 3; ++i) {
      double sum = 0.0;  // of 4 channels: 2 before and 1 after
      for (std::int64_t k = std::max<std::int64_t>(0, channel - 2);
           k <= std::min<std::int64_t>(4, channel + 1); ++k)
        sum += in[static_cast<std::size_t>(k * 3 + i)] * in[static_cast<std::size_t>(k * 3 + i)];
      expected.push_back(in[static_cast<std::size_t>(channel * 3 + i)] /
                         std::pow(2.0 + 0.3 * sum / 4.0, 0.7));
    }
  expect_tensor(F::local_response_norm(x, 4, 0.3, 0.7, 2.0), float64, x.shape(), expected, 1e-12);
  expect_gradients(
      [](const std::vector<Tensor>& in_list) { return F::local_response_norm(in_list[0], 3, 0.5); },
      {x});
}

TEST(NormalizationModules, HaveParametersAndCheckInputs) {
  nn::GroupNorm group(2, 4);
  EXPECT_EQ(group->parameters().size(), 2u);
  const Tensor x = cast(random_tensor({2, 4, 3}), float32);
  EXPECT_EQ(values_of(group(x)), values_of(F::group_norm(x, 2)));
  nn::InstanceNorm2d instance(4);
  EXPECT_TRUE(instance->parameters().empty());
  expect_error<ShapeError>(
      [&] { static_cast<void>(instance(x)); },
      "[instance_norm] expected 4 channels on axis 1 of 4 to 4 axes, got shape "
      "(2, 4, 3)");
  nn::RMSNorm rms(3);
  EXPECT_EQ(rms->parameters()[0].shape(), Shape({3}));
  EXPECT_EQ(values_of(rms(x)), values_of(F::rms_norm(x, {3})));
  EXPECT_EQ(values_of(nn::LocalResponseNorm(2)(x)), values_of(F::local_response_norm(x, 2)));
  expect_error<InvalidArgumentError>(
      [] { nn::GroupNorm(3, 4); },
      "[group_norm] expected a number of channels that the groups divide");
}

}  // namespace
}  // namespace tandem::normalization_modules_test
