// Max pooling with positions, its reverse, and transposed convolution of volumes.
#include "tandem/unpooling_modules.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::unpooling_modules_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Values = std::vector<double>;

// Positions of maxima belong to the values that pooling finds.
void expect_positions(const Tensor& x, const ValuesAndIndices& found, const Tensor& pooled) {
  EXPECT_EQ(values_of(found.values), values_of(pooled));
  EXPECT_EQ(found.indices.dtype(), int64);
  EXPECT_EQ(found.indices.shape().to_string(), pooled.shape().to_string());
  const Tensor flat = reshape(x, {x.dim(0), x.dim(1), -1});
  const Tensor at = reshape(found.indices, {x.dim(0), x.dim(1), -1});
  EXPECT_EQ(values_of(take_along_axis(flat, at, 2)), values_of(pooled));
}

TEST(MaxPoolWithIndices, FindsTheMaximaOfPooling) {
  const Tensor line = random_tensor({2, 3, 11}), image = random_tensor({2, 2, 7, 6}),
               volume = random_tensor({1, 2, 5, 4, 6});
  for (const bool ceil : {false, true})
    for (const std::int64_t dilation : {1, 2}) {
      const nn::MaxPool1dArguments one{
          .stride = 2, .padding = 1, .dilation = dilation, .ceil_mode = ceil};
      expect_positions(line, F::max_pool1d_with_indices(line, 3, one), F::max_pool1d(line, 3, one));
      const nn::MaxPool2dArguments two{
          .stride = nn::Pair(2, 1), .padding = {1, 0}, .dilation = dilation, .ceil_mode = ceil};
      expect_positions(image, F::max_pool2d_with_indices(image, {3, 2}, two),
                       F::max_pool2d(image, {3, 2}, two));
      const nn::MaxPool3dArguments three{
          .stride = nn::Triple(2), .padding = 1, .dilation = {1, 1, dilation}, .ceil_mode = ceil};
      expect_positions(volume, F::max_pool3d_with_indices(volume, {3, 2, 2}, three),
                       F::max_pool3d(volume, {3, 2, 2}, three));
    }
}

TEST(MaxPoolWithIndices, SaysTheFirstOfEqualOnesAndNoPadding) {
  const Tensor equal = ones({1, 4, 4});
  expect_tensor(F::max_pool2d_with_indices(equal, 2).indices, int64, {1, 2, 2}, {0, 2, 8, 10});
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor least = constant({-infinity, -infinity, -infinity}, {.shape = {1, 1, 3}});
  expect_tensor(F::max_pool1d_with_indices(least, 3, {.stride = 1, .padding = 1}).indices, int64,
                {1, 1, 3}, {0, 0, 1});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor some = constant({1.0, nan, 3.0, nan}, {.shape = {1, 1, 4}});
  expect_tensor(F::max_pool1d_with_indices(some, 4).indices, int64, {1, 1, 1}, {1});
}

TEST(MaxPoolWithIndices, HasTheGradientOfPooling) {
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return F::max_pool2d_with_indices(in[0], 3, {.stride = 2, .padding = 1}).values * 1.0;
      },
      {random_tensor({1, 2, 5, 6})});
  expect_second_order(
      [](const std::vector<Tensor>& in) {
        return square(F::max_pool1d_with_indices(in[0], 2, {.stride = 1}).values);
      },
      {random_tensor({1, 2, 4})});
}

TEST(MaxPoolWithIndices, OfUnknownSizes) {
  const auto f = function(
      [](const Tensor& x) {
        return F::max_pool2d_with_indices(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true})
            .indices;
      },
      {.input_signature = {{.shape = {-1, 2, -1, -1}, .dtype = float64}}});
  for (const std::int64_t size : {3, 6}) {
    const Tensor x = random_tensor({2, 2, size, size + 1});
    EXPECT_EQ(values_of(f(x)), values_of(F::max_pool2d_with_indices(
                                             x, 3, {.stride = 2, .padding = 1, .ceil_mode = true})
                                             .indices));
  }
}

TEST(MaxUnpool, PutsMaximaBack) {
  const Tensor x = reshape(range(Dim(16), {.dtype = float64}), {1, 1, 4, 4});
  const ValuesAndIndices pooled = F::max_pool2d_with_indices(x, 2);
  nn::MaxUnpool2d unpool(2);
  expect_tensor(unpool(pooled.values, pooled.indices), float64, {1, 1, 4, 4},
                {0, 0, 0, 0, 0, 5, 0, 7, 0, 0, 0, 0, 0, 13, 0, 15});
  expect_tensor(unpool->forward(pooled.values, pooled.indices, {1, 1, 5, 5}), float64, {1, 1, 5, 5},
                {0, 0, 0, 0, 0, 5, 0, 7, 0, 0, 0, 0, 0, 13, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const Tensor line = constant({{4.0, 2.0, 3.0}}), at = cast(constant({{1.0, 2.0, 4.0}}), int64);
  expect_tensor(F::max_unpool1d(line, at, 3, {.stride = 2, .padding = 1}), float32, {1, 5},
                {0, 4, 2, 0, 3});
  expect_tensor(F::max_unpool1d(line, at, 2, {}, {7}), float32, {1, 7}, {0, 4, 2, 0, 3, 0, 0});
  const Tensor volume = random_tensor({2, 3, 4, 4, 2});
  const ValuesAndIndices deep = F::max_pool3d_with_indices(volume, 2);
  nn::MaxUnpool3d unpool_volumes(2);
  const Tensor back = unpool_volumes(deep.values, deep.indices);
  EXPECT_EQ(back.shape(), volume.shape());
  EXPECT_EQ(
      values_of(
          F::max_pool3d_with_indices(back + 10.0 * cast(not_equal(back, 0.0), float64), 2).indices),
      values_of(deep.indices));
}

TEST(MaxUnpool, HasGradients) {
  const Tensor at = F::max_pool2d_with_indices(random_tensor({2, 1, 4, 4}), 2).indices;
  const auto f = [&](const std::vector<Tensor>& in) {
    return square(F::max_unpool2d(in[0], at, 2));
  };
  expect_gradients(f, {random_tensor({2, 1, 2, 2})});
  expect_second_order(f, {random_tensor({2, 1, 2, 2})});
}

TEST(MaxUnpool, RefusesWhatDoesNotFit) {
  const Tensor x = ones({1, 2, 2}), at = zeros({1, 2, 2}, int64);
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::max_unpool2d(x, zeros({1, 2, 3}, int64), 2));
      },
      "[max_unpool2d] expected an index for each element of shape");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::max_unpool2d(x, at, 2, {}, {6, 4}));
      },
      "[max_unpool2d] expected an output_size between 2 and 6 (exclusive) for axis 2, got 6");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::max_unpool2d(x, at, 2, {}, {4})); },
      "[max_unpool2d] expected an output_size of 2 or 4 numbers, got 1");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::max_unpool2d(x, zeros({1, 2, 2}, int64) + 16.0, 2).to_vector<float>());
      },
      "16");
  expect_error<DTypeError>(
      [] {
        static_cast<void>(F::max_pool1d_with_indices(ones({1, 4}, int32), 2));
      },
      "[max_pool1d_with_indices] expected a floating dtype, got int32");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::max_pool2d_with_indices(ones({1, 1, 1}), 2));
      },
      "[max_pool2d_with_indices] expected");
}

// The gradient of conv3d() with respect to its input is the transposed convolution.
TEST(ConvTranspose3d, IsTheGradientOfConvolution) {
  struct Case {
    nn::Triple stride, padding, more, dilation;
    std::int64_t groups;
  };
  for (const Case& c : {Case{1, 0, 0, 1, 1}, Case{{2, 1, 3}, {1, 0, 1}, {1, 0, 2}, 1, 1},
                        Case{2, {2, 1, 1}, 1, {2, 1, 1}, 2}}) {
    const Tensor x = random_tensor({2, 4, 3, 2, 3}, 1),
                 w = random_tensor({4, 6 / c.groups, 3, 2, 2}, 2);
    const nn::ConvTranspose3dArguments options{.stride = c.stride,
                                               .padding = c.padding,
                                               .output_padding = c.more,
                                               .groups = c.groups,
                                               .dilation = c.dilation};
    const Tensor y = F::conv_transpose3d(x, w, {}, options);
    const auto size = [](std::int64_t n, std::int64_t k, std::int64_t s, std::int64_t p,
                         std::int64_t m,
                         std::int64_t d) { return (n - 1) * s - 2 * p + (k - 1) * d + 1 + m; };
    ASSERT_EQ(
        y.shape(),
        Shape({2, 6, size(3, 3, c.stride.depth, c.padding.depth, c.more.depth, c.dilation.depth),
               size(2, 2, c.stride.height, c.padding.height, c.more.height, c.dilation.height),
               size(3, 2, c.stride.width, c.padding.width, c.more.width, c.dilation.width)}));
    const Tensor at = zeros(y.shape(), float64);
    GradientTape tape;
    tape.watch(at);
    const Tensor forward = F::conv3d(
        at, w, {},
        {.stride = c.stride, .padding = c.padding, .dilation = c.dilation, .groups = c.groups});
    ASSERT_EQ(forward.shape(), x.shape());
    const Tensor gradient = tape.gradient(reduce_sum(forward * x), at);
    expect_tensor(y, float64, y.shape(), values_of(gradient), 1e-12);
  }
}

TEST(ConvTranspose3d, HasABiasAndGradients) {
  const auto f = [](const std::vector<Tensor>& in) {
    return F::conv_transpose3d(
        in[0], in[1], in[2],
        {.stride = {2, 1, 1}, .padding = {1, 0, 0}, .output_padding = {1, 0, 0}});
  };
  const std::vector<Tensor> in = {random_tensor({1, 2, 2, 2, 2}, 1),
                                  random_tensor({2, 2, 3, 1, 2}, 2), random_tensor({2}, 3)};
  expect_gradients(f, in);
  const Tensor plain = f({in[0], in[1], zeros({2}, float64)});
  expect_tensor(f(in) - plain, float64, plain.shape(),
                values_of(broadcast_to(reshape(in[2], {2, 1, 1, 1}), plain.shape())), 1e-12);
  const auto any = function(
      [&](const Tensor& x) {
        return f({x, in[1], in[2]});
      },
      {.input_signature = {{.shape = {-1, 2, -1, 2, 2}, .dtype = float64}}});
  expect_tensor(any(in[0]), float64, plain.shape(), values_of(f(in)), 1e-12);
  nn::ConvTranspose3d module(2, 4, {3, 1, 2}, {.groups = 2});
  EXPECT_EQ(module->weight.shape(), Shape({2, 2, 3, 1, 2}));
  EXPECT_EQ(module(ones({1, 2, 2, 2, 2})).shape(), Shape({1, 4, 4, 2, 3}));
}

TEST(ConvTranspose3d, RefusesWhatDoesNotFit) {
  const Tensor x = ones({1, 2, 2, 2, 2}), w = ones({2, 1, 1, 1, 1});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::conv_transpose3d(x, ones({3, 1, 1, 1, 1})));
      },
      "[conv_transpose3d] expected an input of 3 channels");
  expect_error<ShapeError>([&] { static_cast<void>(F::conv_transpose3d(x, w, ones({2}))); },
                           "[conv_transpose3d] expected a bias of shape (1,), got (2,)");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::conv_transpose3d(x, w, {}, {.padding = {1, 0, 0}}));
      },
      "[conv_transpose3d] expected a padding that leaves elements, got 1 of 2");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::conv_transpose3d(x, w, {}, {.output_padding = {1, 0, 0}}));
      },
      "less output_padding than stride or dilation");
}

}  // namespace
}  // namespace tandem::unpooling_modules_test
