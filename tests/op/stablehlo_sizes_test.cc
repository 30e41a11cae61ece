// StableHLO of functions for all sizes: dynamic dimensions, whose sizes are computed from those of
// the arguments.
#include <gtest/gtest.h>

#include <string>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::stablehlo_sizes_test {
namespace {

using testing::error_of;
using testing::expect_parts;

TEST(StableHloSizes, AreDynamicDimensions) {
  const auto f = function(
      [](const Tensor& x) {
        return softmax(matmul(x, ones({3, 4})) + 1.0);
      },
      {.input_signature = {{{-1, 3}, float32}}});
  const std::string text = f.stablehlo();
  expect_parts(text, {"@main(%arg0: tensor<?x3xf32>) -> (tensor<?x4xf32>)",
                      "\"stablehlo.get_dimension_size\"(%arg0) {dimension = 0 : i64}",
                      "\"stablehlo.dot_general\"", "\"stablehlo.dynamic_broadcast_in_dim\""});
  // Tensors have known sizes.
  EXPECT_EQ(f.stablehlo(ones({2, 3})).find('?'), std::string::npos);
}

TEST(StableHloSizes, AreComputedFromThoseOfTheArguments) {
  const std::string text =
      function([](const Tensor& x) { return x.slice(0, 0, x.dim(0) / 2 + 1) / x.dim(0); },
               {.input_signature = {{{-1, 3}, float32}}})
          .stablehlo();
  expect_parts(
      text, {"-> (tensor<?x3xf32>)", "\"stablehlo.real_dynamic_slice\"", "\"stablehlo.divide\""});
}

TEST(StableHloSizes, AreTimesAFactor) {
  const std::string text =
      function(
          [](const Tensor& x) { return nn::functional::interpolate(x, {.scale_factor = {1.7}}); },
          {.input_signature = {{{1, 2, -1}, float32}}})
          .stablehlo();
  expect_parts(text, {"-> (tensor<1x2x?xf32>)", "\"stablehlo.floor\"", "1.7"});
}

TEST(StableHloSizes, ThatHaveToBeEqualAreAsserted) {
  const std::string text = function(
                               [](const Tensor& x, const Tensor& y) {
                                 return x + ensure_shape(y, {x.dim(0), 3});
                               },
                               {.input_signature = {{{-1, 3}, float32}, {{-1, 3}, float32}}})
                               .stablehlo();
  expect_parts(text, {"call_target_name = \"shape_assertion\"",
                      "[EnsureShape] expected a tensor of shape (axis 0 of 'args_0', 3)"});
}

TEST(StableHloSizes, ThatAnOperationNeedsAreRefused) {
  const auto refused = [](auto f, const Shape& shape, std::initializer_list<const char*> parts) {
    const auto traced = function(f, {.name = "f", .input_signature = {{shape, float32}}});
    expect_parts(error_of<UnimplementedError>([&] { traced.stablehlo(); }), parts);
  };
  refused(
      [](const Tensor& x) {
        return nn::conv2d(x, ones({3, 3, 1, 2}));
      },
      {-1, -1, 8, 1},
      {"[Conv2D]", "cannot be lowered to StableHLO", "axis 1 of 'args_0'",
       "give tensors of known sizes"});
  refused([](const Tensor& x) { return x + random::uniform(x.shape()); }, {-1, 3},
          {"[RandomUniform]", "cannot be lowered to StableHLO", "(?, 3) is unknown"});
  refused(
      [](const Tensor& x) {
        return cond(
            reduce_sum(x) > 0.0, [&] { return x; }, [&] { return -x; });
      },
      {-1, 3}, {"control flow has no form for unknown sizes"});
  const auto none = function([](const Tensor& x) { return x; });
  expect_parts(error_of<InvalidArgumentError>([&] { none.stablehlo(); }),
               {"the function takes 1 tensors, input_signature has 0"});
}

}  // namespace
}  // namespace tandem::stablehlo_sizes_test
