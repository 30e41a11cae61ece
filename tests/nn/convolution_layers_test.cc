// Convolutions of sequences, transposed and separable ones, and layers that change sizes.
#include "tandem/convolution_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "nn/layer_support.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::convolution_layers_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::infer;
using testing::random_tensor;
using testing::values_of;
using Values = std::vector<double>;

constexpr double kTolerance = 1e-9;

// A layer in float64 with random variables, built for `x`.
template <class Made>
Made built(Made layer, const Tensor& x) {
  layer(x);
  std::uint32_t seed = 40;
  for (Variable variable : layer.variables())
    variable.assign(random_tensor(variable.shape(), seed++));
  return layer;
}

// The layer's result has the inferred shape, in functions of unknown batches too; the gradients of
// input and variables are those of differences; and bfloat16 and float32 have the same shape.
void expect_layer(const Layer& layer, const Tensor& x) {
  const Tensor y = layer(x);
  EXPECT_EQ(infer(layer, x.shape()), y.shape());
  Shape open = x.shape();
  open.set(0, -1);
  const auto traced =
      function([&](const Tensor& in) { return layer(in); }, {.input_signature = {{open, float64}}});
  expect_tensor(traced(x), float64, y.shape(), values_of(y), kTolerance);
  testing::expect_gradients([&](const std::vector<Tensor>& in) { return layer(in[0]); }, {x});
  for (Variable variable : layer.trainable_variables()) {
    const Tensor kept = variable.value();
    GradientTape tape;
    const Tensor loss = reduce_sum(square(layer(x)));
    const Values gradient = values_of(tape.gradient(loss, variable));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const auto loss_at = [&](double step) {
        Values moved = values_of(kept);
        moved[i] += step;
        variable.assign(constant(moved, {.shape = kept.shape()}));
        return reduce_sum(square(layer(x))).item<double>();
      };
      EXPECT_NEAR(gradient[i], (loss_at(1e-4) - loss_at(-1e-4)) / 2e-4,
                  1e-5 * std::max(1.0, std::abs(gradient[i])))
          << variable.name() << ' ' << i;
    }
    variable.assign(kept);
  }
}

// A convolution of one sequence [positions, channels], element by element.
Values plain_conv1d(const Values& x, std::int64_t positions, const Values& kernel,
                    std::int64_t size, std::int64_t in, std::int64_t out, std::int64_t groups,
                    std::int64_t stride, std::int64_t dilation, std::int64_t before,
                    std::int64_t results) {
  Values y(static_cast<std::size_t>(results * out), 0.0);
  const std::int64_t in_group = in / groups, out_group = out / groups;
  for (std::int64_t p = 0; p < results; ++p)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t k = 0; k < size; ++k) {
        const std::int64_t at = p * stride + k * dilation - before;
        if (at < 0 || at >= positions) continue;
        for (std::int64_t c = 0; c < in_group; ++c)
          y[static_cast<std::size_t>(p * out + o)] +=
              x[static_cast<std::size_t>(at * in + o / out_group * in_group + c)] *
              kernel[static_cast<std::size_t>((k * in_group + c) * out + o)];
      }
  return y;
}

TEST(ConvolutionLayers, Conv1DEqualsItsFormula) {
  const Tensor x = random_tensor({1, 9, 4}, 1);
  const struct {
    const char* padding;
    std::int64_t stride, dilation, groups, before, results;
  } cases[] = {{"valid", 1, 1, 1, 0, 7}, {"valid", 2, 2, 2, 0, 3},  {"same", 1, 2, 1, 2, 9},
               {"same", 2, 1, 2, 1, 5},  {"causal", 1, 1, 1, 2, 9}, {"causal", 1, 3, 2, 6, 9},
               {"causal", 2, 1, 1, 2, 5}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.padding) + " stride " + std::to_string(c.stride));
    const layers::Conv1D layer = built(layers::Conv1D(6, 3,
                                                      {.strides = c.stride,
                                                       .padding = c.padding,
                                                       .dilation_rate = c.dilation,
                                                       .groups = c.groups,
                                                       .use_bias = false,
                                                       .dtype = "float64"}),
                                       x);
    EXPECT_EQ(layer.variables()[0].shape(), (Shape{3, 4 / c.groups, 6}));
    expect_tensor(layer(x), float64, {1, c.results, 6},
                  plain_conv1d(values_of(x), 9, values_of(layer.variables()[0].value()), 3, 4, 6,
                               c.groups, c.stride, c.dilation, c.before, c.results),
                  kTolerance);
  }
  const Tensor two = random_tensor({2, 5, 2}, 3);
  expect_layer(
      built(layers::Conv1D(2, 2, {.padding = "causal", .activation = "tanh", .dtype = "float64"}),
            two),
      two);
  EXPECT_EQ(infer(layers::Conv1D(6, 3, {.padding = "causal"}), {-1, -1, 4}), (Shape{-1, -1, 6}));
}

TEST(ConvolutionLayers, TransposedConvolutionsSpreadTheKernel) {
  const struct {
    const char* padding;
    std::int64_t kernel, stride;
    nn::OptionalPair more;
    std::int64_t begin, size;  // which part of the whole result
  } cases[] = {{"valid", 3, 2, {}, 0, 9}, {"valid", 2, 3, {}, 0, 12}, {"same", 3, 2, {}, 0, 8},
               {"same", 4, 2, {}, 1, 8},  {"same", 3, 1, {}, 1, 4},   {"valid", 3, 2, 1, 0, 10},
               {"same", 3, 2, 1, 0, 8}};
  const std::int64_t n = 4;
  const Tensor x = random_tensor({1, n, 1, 2}, 1);
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.padding) + " kernel " + std::to_string(c.kernel) + " stride " +
                 std::to_string(c.stride));
    nn::OptionalPair more;
    if (c.more) more = nn::OptionalPair(c.more->height, 0);
    const layers::Conv2DTranspose layer = built(layers::Conv2DTranspose(3, {c.kernel, 1},
                                                                        {.strides = {c.stride, 1},
                                                                         .padding = c.padding,
                                                                         .output_padding = more,
                                                                         .use_bias = false,
                                                                         .dtype = "float64"}),
                                                x);
    EXPECT_EQ(layer.variables()[0].shape(), (Shape{c.kernel, 1, 3, 2}));
    const Values input = values_of(x), kernel = values_of(layer.variables()[0].value());
    Values expected(static_cast<std::size_t>(c.size * 3), 0.0);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < c.kernel; ++k) {
        const std::int64_t at = i * c.stride + k - c.begin;
        if (at < 0 || at >= c.size) continue;
        for (std::int64_t o = 0; o < 3; ++o)
          for (std::int64_t channel = 0; channel < 2; ++channel)
            expected[static_cast<std::size_t>(at * 3 + o)] +=
                input[static_cast<std::size_t>(i * 2 + channel)] *
                kernel[static_cast<std::size_t>((k * 3 + o) * 2 + channel)];
      }
    expect_tensor(layer(x), float64, {1, c.size, 1, 3}, expected, kTolerance);
  }
  const Tensor images = random_tensor({2, 2, 3, 2}, 3);
  expect_layer(
      built(
          layers::Conv2DTranspose(
              2, 3, {.strides = 2, .padding = "same", .activation = "sigmoid", .dtype = "float64"}),
          images),
      images);
  EXPECT_EQ(infer(layers::Conv2DTranspose(5, 4, {.strides = 2, .padding = "same"}), {-1, 7, -1, 3}),
            (Shape{-1, 14, -1, 5}));
}

// Numbers as padding are those of zeros around the image, and make transposed results smaller.
TEST(ConvolutionLayers, PadByNumbers) {
  const Tensor x = random_tensor({2, 6, 5, 2}, 1);
  const Tensor padded = pad(x, {{0, 0}, {1, 2}, {3, 0}, {0, 0}});
  const nn::WindowPadding numbers{{1, 2}, {3, 0}};
  const auto expect_padded = [&](const Layer& layer, const Layer& plain) {
    static_cast<void>(layer(x));
    static_cast<void>(plain(padded));
    for (std::size_t i = 0; i < layer.variables().size(); ++i)
      Variable(plain.variables()[i]).assign(layer.variables()[i].value());
    const Tensor y = layer(x);
    EXPECT_EQ(infer(layer, {2, 6, 5, 2}), y.shape());
    expect_tensor(y, float64, y.shape(), values_of(plain(padded)), kTolerance);
    expect_layer(layer, x);
  };
  using layers::Conv2D, layers::DepthwiseConv2D, layers::SeparableConv2D;
  expect_padded(Conv2D(3, 3, {.strides = 2, .padding = numbers, .dtype = "float64"}),
                Conv2D(3, 3, {.strides = 2, .dtype = "float64"}));
  expect_padded(DepthwiseConv2D(3, {.padding = numbers, .dtype = "float64"}),
                DepthwiseConv2D(3, {.dtype = "float64"}));
  expect_padded(SeparableConv2D(3, 3, {.padding = numbers, .dtype = "float64"}),
                SeparableConv2D(3, 3, {.dtype = "float64"}));
  const layers::MaxPooling2D pool(4, {.strides = 2, .padding = numbers, .dtype = "float64"});
  expect_tensor(pool(x), float64, {2, 3, 3, 2},
                values_of(nn::max_pool2d(x, {.window = 4, .strides = 2, .padding = numbers})));
  const layers::Conv2DTranspose up =
      built(layers::Conv2DTranspose(3, 4, {.strides = 2, .padding = 1, .dtype = "float64"}), x);
  EXPECT_EQ(infer(up, {-1, 6, -1, 2}), (Shape{-1, 12, -1, 3}));
  expect_layer(up, x);
  expect_error<InvalidArgumentError>(
      [] { layers::MaxPooling2D(2, {.padding = 2}); },
      "[max_pooling2d] expected a padding below the window 2 x 2, got 2, 2, 2 and 2");
  expect_error<InvalidArgumentError>([&] { Conv2D(3, 9, {.padding = 1})(x); },
                                     "an image of at least 9 x 9 with its padding");
  expect_error<InvalidArgumentError>([&] { layers::Conv2DTranspose(3, 2, {.padding = 4})(x); },
                                     "larger than the padding");
}

TEST(ConvolutionLayers, SeparableConvolutionsAreTwo) {
  const Tensor x = random_tensor({2, 5, 5, 2}, 1);
  const layers::SeparableConv2D layer = built(
      layers::SeparableConv2D(
          3, 3,
          {.padding = "same", .depth_multiplier = 2, .activation = "tanh", .dtype = "float64"}),
      x);
  const std::vector<Variable> v = layer.variables();
  ASSERT_EQ(v.size(), 3u);
  EXPECT_EQ(v[1].shape(), (Shape{1, 1, 4, 3}));
  const Tensor each = nn::depthwise_conv2d(x, v[0], {}, {.padding = nn::Padding::kSame});
  const Tensor expected = tanh(nn::conv2d(each, v[1], v[2]));
  expect_tensor(layer(x), float64, {2, 5, 5, 3}, values_of(expected), kTolerance);
  const Tensor small = random_tensor({1, 3, 3, 1}, 2);
  expect_layer(built(layers::SeparableConv2D(2, 2, {.dtype = "float64"}), small), small);
}

TEST(ConvolutionLayers, PoolingOfSequences) {
  const Tensor x = constant({0.0, 1.0, 2.0, 3.0, 4.0, 5.0}, {.dtype = float64, .shape = {1, 6, 1}});
  expect_tensor(layers::MaxPooling1D(3, {.strides = 2, .padding = "same", .dtype = "float64"})(x),
                float64, {1, 3, 1}, {2, 4, 5}, 0.0);
  expect_tensor(
      layers::AveragePooling1D(3, {.strides = 2, .padding = "same", .dtype = "float64"})(x),
      float64, {1, 3, 1}, {1, 3, 4.5}, kTolerance);
  expect_tensor(layers::MaxPooling1D(2, {.dtype = "float64"})(x), float64, {1, 3, 1}, {1, 3, 5},
                0.0);
  expect_layer(layers::AveragePooling1D(2, {.strides = 1, .dtype = "float64"}),
               random_tensor({2, 5, 3}, 1));
}

TEST(ConvolutionLayers, UpSamplingRepeatsOrInterpolates) {
  const Tensor x = constant({1.0, 2.0, 3.0, 4.0}, {.dtype = float64, .shape = {1, 2, 2, 1}});
  expect_tensor(layers::UpSampling2D({2, 1}, {.dtype = "float64"})(x), float64, {1, 4, 2, 1},
                {1, 2, 1, 2, 3, 4, 3, 4}, 0.0);
  expect_tensor(layers::UpSampling2D({1, 2}, {.interpolation = "bilinear", .dtype = "float64"})(x),
                float64, {1, 2, 4, 1}, {1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4}, 1e-7);
  expect_tensor(
      layers::UpSampling1D(3, {.dtype = "float64"})(random_tensor({2, 1, 1}, 1)), float64,
      {2, 3, 1},
      [] {
        const Values v = values_of(random_tensor({2, 1, 1}, 1));
        return Values{v[0], v[0], v[0], v[1], v[1], v[1]};
      }(),
      0.0);
  const Tensor images = random_tensor({2, 2, 3, 2}, 3);
  expect_layer(layers::UpSampling2D(2, {.dtype = "float64"}), images);
  expect_layer(layers::UpSampling2D({2, 3}, {.interpolation = "bilinear", .dtype = "float64"}),
               images);
  expect_layer(layers::UpSampling1D(2, {.dtype = "float64"}), random_tensor({2, 3, 2}, 4));
}

TEST(ConvolutionLayers, CroppingUndoesPadding) {
  const Tensor x = random_tensor({2, 4, 3}, 1);
  const layers::ZeroPadding1D pad({2, 1}, {.dtype = "float64"});
  const layers::Cropping1D crop({2, 1}, {.dtype = "float64"});
  EXPECT_EQ(pad(x).shape(), (Shape{2, 7, 3}));
  expect_tensor(crop(pad(x)), float64, {2, 4, 3}, values_of(x), 0.0);
  expect_layer(pad, x);
  expect_layer(crop, x);
  const Tensor images = random_tensor({1, 5, 6, 2}, 2);
  const layers::Cropping2D both({1, 2}, {0, 3}, {.dtype = "float64"});
  expect_tensor(both(images), float64, {1, 2, 3, 2},
                values_of(slice(images, {0, 1, 0, 0}, {1, 2, 3, 2})), 0.0);
  expect_layer(both, images);
  EXPECT_EQ(infer(layers::Cropping2D({1, 2}), {-1, 5, -1, 2}), (Shape{-1, 3, -1, 2}));
  const layers::ZeroPadding2D around({1, 2}, {0, 3}, {.dtype = "float64"});
  EXPECT_EQ(infer(around, {-1, 5, -1, 2}), (Shape{-1, 8, -1, 2}));
  expect_tensor(both(around(images)), float64, images.shape(), values_of(images), 0.0);
  EXPECT_EQ(infer(layers::ZeroPadding1D(2), {-1, 5, 2}), (Shape{-1, 9, 2}));
  EXPECT_EQ(infer(layers::Cropping1D(), {-1, 5, 2}), (Shape{-1, 3, 2}));
}

TEST(ConvolutionLayers, SixteenBits) {
  const Tensor x = cast(random_tensor({2, 4, 4, 2}, 1), bfloat16);
  for (const Layer& layer :
       {Layer(
            layers::Conv2DTranspose(3, 3, {.strides = 2, .padding = "same", .dtype = "bfloat16"})),
        Layer(layers::SeparableConv2D(3, 3, {.dtype = "mixed_bfloat16"})),
        Layer(layers::UpSampling2D(2, {.interpolation = "bilinear", .dtype = "bfloat16"}))}) {
    const Tensor y = layer(x);
    EXPECT_EQ(y.dtype(), bfloat16) << layer.base().kind();
    EXPECT_EQ(y.shape(), infer(layer, x.shape()));
  }
}

TEST(ConvolutionLayers, MistakesAreNamed) {
  const Tensor x = ones({2, 4, 3});
  const layers::Conv1D layer(6, 3);
  layer(x);
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer(ones({2, 4, 5})));
      },
      "[conv1d] expected an input of 3 channels, got (2, 4, 5)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer(ones({2, 2, 3})));
      },
      "[conv1d] expected a sequence of at least 3 positions");
  expect_error<InvalidArgumentError>([] { layers::Conv1D(6, 3, {.padding = "full"}); }, "'full'");
  expect_error<InvalidArgumentError>([] { layers::Conv1D(5, 3, {.groups = 2}); },
                                     "[conv1d] expected filters divisible by groups");
  expect_error<InvalidArgumentError>(
      [] { layers::Conv2DTranspose(5, 3, {.strides = 2, .output_padding = 2}); },
      "[conv2d_transpose] expected an output_padding of 0 or more and less than the strides");
  expect_error<InvalidArgumentError>(
      [] { layers::UpSampling2D(2, {.interpolation = "bicubic"}); },
      "[up_sampling2d] expected interpolation 'nearest' or 'bilinear', got 'bicubic'");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layers::Cropping1D({2, 2})(x));
      },
      "[cropping1d] expected more than 4 elements along axis 1, got (?, 4, 3)");
  const auto traced = function([](const Tensor& in) { return layers::UpSampling2D(2)(in); },
                               {.input_signature = {{{1, -1, 2, 1}, float32}}});
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(traced(ones({1, 2, 2, 1})));
      },
      "[up_sampling2d] expected a known height and width");
}

}  // namespace
}  // namespace tandem::convolution_layers_test
