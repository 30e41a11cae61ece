// Convolutions and pooling of sequences and volumes, transposed convolutions, padding modules and
// shuffling, against plain loops in double.
#include "tandem/convolution_modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/layer_support.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::convolution_modules_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Values = std::vector<double>;
constexpr double kTolerance = 1e-11;

// A volume [channels, depth, height, width] by its indices; zero outside.
struct Volume {
  Values values;
  std::int64_t sizes[4];
  Volume(const Tensor& x, std::int64_t image) : values(values_of(x[image])) {
    for (int i = 0; i < 4; ++i) sizes[i] = x.dim(i + 1);
  }
  bool has(std::int64_t d, std::int64_t h, std::int64_t w) const {
    return d >= 0 && d < sizes[1] && h >= 0 && h < sizes[2] && w >= 0 && w < sizes[3];
  }
  double at(std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) const {
    if (!has(d, h, w)) return 0.0;
    return values[static_cast<std::size_t>(((c * sizes[1] + d) * sizes[2] + h) * sizes[3] + w)];
  }
};

std::int64_t count(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                   std::int64_t padding, std::int64_t dilation) {
  return (size + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1;
}

struct Conv3Case {
  nn::Triple kernel, stride, padding, dilation;
  std::int64_t groups;
};

// The convolution by definition: x [n, in, d, h, w], weight [out, in / groups, kernel...].
Values convolved(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv3Case& c) {
  const Values taps = values_of(weight), shift = values_of(bias);
  const std::int64_t out = weight.dim(0), each = weight.dim(1);
  Values result;
  for (std::int64_t n = 0; n < x.dim(0); ++n) {
    const Volume in(x, n);
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t d = 0;
           d < count(x.dim(2), c.kernel.depth, c.stride.depth, c.padding.depth, c.dilation.depth);
           ++d)
        for (std::int64_t h = 0; h < count(x.dim(3), c.kernel.height, c.stride.height,
                                           c.padding.height, c.dilation.height);
             ++h)
          for (std::int64_t w = 0; w < count(x.dim(4), c.kernel.width, c.stride.width,
                                             c.padding.width, c.dilation.width);
               ++w) {
            double sum = shift[static_cast<std::size_t>(o)];
            std::size_t tap = static_cast<std::size_t>(o * each * c.kernel.depth * c.kernel.height *
                                                       c.kernel.width);
            for (std::int64_t i = 0; i < each; ++i)
              for (std::int64_t p = 0; p < c.kernel.depth; ++p)
                for (std::int64_t q = 0; q < c.kernel.height; ++q)
                  for (std::int64_t r = 0; r < c.kernel.width; ++r)
                    sum += taps[tap++] *
                           in.at(o / (out / c.groups) * each + i,
                                 d * c.stride.depth - c.padding.depth + p * c.dilation.depth,
                                 h * c.stride.height - c.padding.height + q * c.dilation.height,
                                 w * c.stride.width - c.padding.width + r * c.dilation.width);
            result.push_back(sum);
          }
  }
  return result;
}

const FunctionOptions kUnknownVolumes{.input_signature = {{Shape{-1, -1, -1, -1, -1}, float64}}};

TEST(VolumeFunctions, ConvolveByDefinition) {
  const Tensor x = random_tensor({2, 4, 5, 4, 6}, 1, -1.0, 1.0);
  const Conv3Case cases[] = {{3, 1, 0, 1, 1},
                             {{2, 3, 1}, {2, 1, 3}, {1, 0, 2}, 1, 1},
                             {{3, 2, 2}, {1, 2, 2}, 1, {2, 1, 2}, 2},
                             {{1, 3, 3}, 2, {0, 1, 1}, 1, 4}};
  for (const Conv3Case& c : cases) {
    const Tensor weight = random_tensor(
                     {8, 4 / c.groups, c.kernel.depth, c.kernel.height, c.kernel.width}, 2, -1.0,
                     1.0),
                 bias = random_tensor({8}, 3);
    const auto convolve = [&](const Tensor& in) {
      return F::conv3d(
          in, weight, bias,
          {.stride = c.stride, .padding = c.padding, .dilation = c.dilation, .groups = c.groups});
    };
    const Tensor y = convolve(x);
    SCOPED_TRACE(y.shape().to_string());
    expect_tensor(y, float64, y.shape(), convolved(x, weight, bias, c), kTolerance);
    EXPECT_EQ(y.dim(2),
              count(5, c.kernel.depth, c.stride.depth, c.padding.depth, c.dilation.depth));
    const auto traced =
        function(convolve, {.input_signature = {{Shape{-1, 4, -1, -1, -1}, float64}}});
    expect_tensor(traced(x), float64, y.shape(), values_of(y));
    // Sizes of the kernel, too.
    const auto with_gradients = [&](const Tensor& in, const Tensor& kernel) {
      GradientTape tape;
      tape.watch(in);
      tape.watch(kernel);
      const Tensor result = F::conv3d(
          in, kernel, bias,
          {.stride = c.stride, .padding = c.padding, .dilation = c.dilation, .groups = c.groups});
      const auto gradients = tape.gradient(reduce_sum(square(result)), {in, kernel});
      return std::tuple(result, gradients[0], gradients[1]);
    };
    const Shape any{-1, -1, -1, -1, -1};
    const auto unknown =
        function(with_gradients, {.input_signature = {{any, float64}, {any, float64}}});
    const auto [result, dx, dweight] = unknown(x, weight);
    const auto [expected, expected_dx, expected_dweight] = with_gradients(x, weight);
    expect_tensor(result, float64, y.shape(), values_of(y));
    expect_tensor(dx, float64, x.shape(), values_of(expected_dx), kTolerance);
    expect_tensor(dweight, float64, weight.shape(), values_of(expected_dweight), kTolerance);
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return F::conv3d(in[0], in[1], in[2],
                           {.stride = c.stride,
                            .padding = c.padding,
                            .dilation = c.dilation,
                            .groups = c.groups});
        },
        {slice(x, {0, 0, 0, 0, 0}, {1, -1, -1, -1, 4}), weight, bias});
  }
}

TEST(VolumeFunctions, PoolByDefinition) {
  const Tensor x = random_tensor({1, 2, 5, 4, 6}, 1);
  const Conv3Case cases[] = {
      {2, 2, 0, 1, 1}, {{3, 2, 3}, {1, 2, 2}, {1, 0, 1}, 1, 1}, {2, {2, 1, 1}, 1, {2, 1, 1}, 1}};
  for (const Conv3Case& c : cases) {
    Values maxima, means, inside;
    Shape shape{1, 2, 0, 0, 0};
    shape.set(2, count(5, c.kernel.depth, c.stride.depth, c.padding.depth, c.dilation.depth));
    shape.set(3, count(4, c.kernel.height, c.stride.height, c.padding.height, c.dilation.height));
    shape.set(4, count(6, c.kernel.width, c.stride.width, c.padding.width, c.dilation.width));
    const Volume in(x, 0);
    for (std::int64_t channel = 0; channel < 2; ++channel)
      for (std::int64_t d = 0; d < shape.dim(2); ++d)
        for (std::int64_t h = 0; h < shape.dim(3); ++h)
          for (std::int64_t w = 0; w < shape.dim(4); ++w) {
            double best = -1e300, sum = 0.0, n = 0.0;
            for (std::int64_t p = 0; p < c.kernel.depth; ++p)
              for (std::int64_t q = 0; q < c.kernel.height; ++q)
                for (std::int64_t r = 0; r < c.kernel.width; ++r) {
                  const std::int64_t a = d * c.stride.depth - c.padding.depth +
                                         p * c.dilation.depth,
                                     b = h * c.stride.height - c.padding.height +
                                         q * c.dilation.height,
                                     e = w * c.stride.width - c.padding.width +
                                         r * c.dilation.width;
                  if (!in.has(a, b, e)) continue;
                  best = std::max(best, in.at(channel, a, b, e));
                  sum += in.at(channel, a, b, e);
                  n += 1.0;
                }
            maxima.push_back(best);
            means.push_back(sum /
                            static_cast<double>(c.kernel.depth * c.kernel.height * c.kernel.width));
            inside.push_back(sum / n);
          }
    SCOPED_TRACE(shape.to_string());
    const auto maximum = [&](const Tensor& in_volume) {
      return F::max_pool3d(in_volume, c.kernel,
                           {.stride = c.stride, .padding = c.padding, .dilation = c.dilation});
    };
    expect_tensor(maximum(x), float64, shape, maxima);
    expect_tensor(function(maximum, kUnknownVolumes)(x), float64, shape, maxima);
    expect_gradients([&](const std::vector<Tensor>& t) { return maximum(t[0]); }, {x});
    if (c.dilation != nn::Triple(1)) continue;
    for (const bool padding_counts : {false, true}) {
      const auto mean = [&](const Tensor& in_volume) {
        return F::avg_pool3d(
            in_volume, c.kernel,
            {.stride = c.stride, .padding = c.padding, .count_include_pad = padding_counts});
      };
      expect_tensor(mean(x), float64, shape, padding_counts ? means : inside, kTolerance);
      expect_tensor(function(mean, kUnknownVolumes)(x), float64, shape, values_of(mean(x)),
                    kTolerance);
      expect_gradients([&](const std::vector<Tensor>& t) { return mean(t[0]); }, {x});
    }
  }
  // Adaptive pooling of axes one after another is that of images per slice.
  const Tensor pooled = F::adaptive_max_pool3d(x, {5, 3, 4});
  for (std::int64_t d = 0; d < 5; ++d)
    expect_tensor(pooled(Slice{}, Slice{}, d), float64, {1, 2, 3, 4},
                  values_of(F::adaptive_max_pool2d(x(Slice{}, Slice{}, d), {3, 4})));
  expect_tensor(nn::AdaptiveAvgPool3d(1)(x), float64, {1, 2, 1, 1, 1},
                values_of(reduce_mean(x, {.axis = Dims{2, 3, 4}})), kTolerance);
}

TEST(SequenceFunctions, AreThoseOfImagesWithOneRow) {
  const Tensor x = random_tensor({2, 4, 9}, 1), weight = random_tensor({6, 2, 3}, 2),
               bias = random_tensor({6}, 3);
  const Tensor images = expand_dims(x, 2);
  const auto row = [](const Tensor& y) { return values_of(squeeze(y, {2})); };
  expect_tensor(
      F::conv1d(x, weight, bias, {.stride = 2, .padding = 3, .dilation = 2, .groups = 2}), float64,
      {2, 6, 6},
      row(F::conv2d(images, expand_dims(weight, 2), bias,
                    {.stride = {1, 2}, .padding = {0, 3}, .dilation = {1, 2}, .groups = 2})),
      kTolerance);
  expect_tensor(F::conv1d(x, weight, {}, {.padding = 1, .groups = 2, .padding_mode = "circular"}),
                float64, {2, 6, 9},
                values_of(F::conv1d(F::pad(x, {1, 1}, "circular"), weight, {}, {.groups = 2})),
                kTolerance);
  expect_tensor(
      F::max_pool1d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true}), float64, {2, 4, 5},
      row(F::max_pool2d(images, {1, 3},
                        {.stride = nn::Pair(1, 2), .padding = {0, 1}, .ceil_mode = true})));
  expect_tensor(
      F::avg_pool1d(x, 3, {.padding = 1, .count_include_pad = false}), float64, {2, 4, 3},
      row(F::avg_pool2d(images, {1, 3}, {.padding = {0, 1}, .count_include_pad = false})));
  expect_tensor(F::adaptive_avg_pool1d(x, 4), float64, {2, 4, 4},
                row(F::adaptive_avg_pool2d(images, {1, 4})), kTolerance);
  expect_tensor(nn::AdaptiveMaxPool1d(2)(x), float64, {2, 4, 2},
                row(F::adaptive_max_pool2d(images, {1, 2})));
}

// The gradient of a convolution with respect to its input.
TEST(TransposedFunctions, AreGradientsOfConvolutions) {
  for (const std::int64_t groups : {1, 2}) {
    const Tensor x = random_tensor({2, 4, 7}, 1), weight = random_tensor({6, 4 / groups, 3}, 2);
    GradientTape tape;
    tape.watch(x);
    const Tensor y = F::conv1d(x, weight, {}, {.stride = 2, .padding = 1, .groups = groups});
    const Tensor dy = random_tensor(y.shape(), 3);
    const Tensor gradient = tape.gradient(reduce_sum(y * dy), x);
    const Tensor bias = random_tensor({4}, 4);
    expect_tensor(
        F::conv_transpose1d(dy, weight, bias, {.stride = 2, .padding = 1, .groups = groups}),
        float64, {2, 4, 7}, values_of(gradient + expand_dims(bias, 1)), kTolerance);
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return F::conv_transpose1d(in[0], in[1], in[2],
                                     {.stride = 2, .output_padding = 1, .groups = groups});
        },
        {dy, weight, bias});
  }
}

TEST(ConvolutionModules, HavePyTorchsParameters) {
  const nn::Conv1d conv(4, 6, 3, {.stride = 2, .groups = 2});
  EXPECT_EQ(conv->weight.shape(), Shape({6, 2, 3}));
  EXPECT_EQ(conv->bias.shape(), Shape({6}));
  EXPECT_LE(conv->weight.value().abs().max().item(), 1.0 / std::sqrt(6.0));
  EXPECT_EQ(conv(ones({2, 4, 9})).shape(), Shape({2, 6, 4}));
  const nn::Conv3d volumes(2, 4, {1, 2, 3}, {.padding = {0, 1, 1}, .bias = false});
  EXPECT_FALSE(volumes->bias.defined());
  EXPECT_EQ(volumes(ones({1, 2, 3, 4, 5})).shape(), Shape({1, 4, 3, 5, 5}));
  const nn::ConvTranspose2d up(4, 6, 4, {.stride = 2, .padding = 1, .groups = 2});
  EXPECT_EQ(up->weight.shape(), Shape({4, 3, 4, 4}));
  EXPECT_EQ(up(ones({1, 4, 5, 6})).shape(), Shape({1, 6, 10, 12}));
  const nn::ConvTranspose1d longer(4, 2, 3, {.stride = 2, .output_padding = 1});
  EXPECT_EQ(longer(ones({1, 4, 5})).shape(), Shape({1, 2, 12}));
  EXPECT_EQ(longer.state_dict().size(), 2u);
  const Tensor x = random_tensor({1, 2, 4, 4, 4}, 1);
  expect_tensor(nn::MaxPool3d(2)(x), float64, {1, 2, 2, 2, 2}, values_of(F::max_pool3d(x, 2)));
  expect_tensor(nn::AvgPool3d(2)(x), float64, {1, 2, 2, 2, 2}, values_of(F::avg_pool3d(x, 2)));
  const Tensor line = random_tensor({1, 2, 8}, 1);
  expect_tensor(nn::MaxPool1d(2)(line), float64, {1, 2, 4}, values_of(F::max_pool1d(line, 2)));
  expect_tensor(nn::AvgPool1d(2)(line), float64, {1, 2, 4}, values_of(F::avg_pool1d(line, 2)));
  expect_tensor(nn::AdaptiveAvgPool1d(3)(line), float64, {1, 2, 3},
                values_of(F::adaptive_avg_pool1d(line, 3)));
}

TEST(ConvolutionModules, RefuseOtherShapes) {
  expect_error<InvalidArgumentError>([] { nn::Conv1d(3, 4, 3, {.groups = 2}); },
                                     "[conv1d] expected positive sizes and numbers of channels");
  expect_error<InvalidArgumentError>([] { nn::ConvTranspose2d(4, 0, 3); }, "[conv_transpose2d]");
  expect_error<ShapeError>(
      [] {
        nn::Conv1d(3, 4, 3)(ones({2, 9, 3}));
      },
      "[conv1d] expected an input of 3 channels on axis 1");
  expect_error<ShapeError>(
      [] {
        nn::Conv3d(3, 4, 3)(ones({2, 3, 9, 9}));
      },
      "[conv3d] expected an input (batch, channels, depth, height, width)");
  expect_error<ShapeError>([] { F::max_pool3d(ones({3, 4}), 2); }, "expected volumes (batch,");
  expect_error<ShapeError>(
      [] {
        nn::conv3d(ones({1, 2, 5, 5, 1}), ones({3, 1, 1, 1, 2}));
      },
      "[conv3d] expected volumes as deep as the kernel");
  expect_error<InvalidArgumentError>([] { nn::VolumePadding(1, -1, 0); },
                                     "[padding] expected numbers of 0 or more, got 1, -1 and 0");
}

TEST(PaddingModules, PadTheLastAxes) {
  const Tensor x = random_tensor({1, 2, 3, 4, 5}, 1), image = x[0], line = image[0];
  const auto expect = [](const auto& made, const Tensor& in, const std::vector<std::int64_t>& sides,
                         const char* mode, double value = 0.0) {
    const Tensor y = F::pad(in, sides, mode, value);
    expect_tensor(made(in), float64, y.shape(), values_of(y));
  };
  expect(nn::ReflectionPad1d(2), line, {2, 2}, "reflect");
  expect(nn::ReflectionPad2d({1, 0, 2, 1}), image, {1, 0, 2, 1}, "reflect");
  expect(nn::ReflectionPad3d(1), x, {1, 1, 1, 1, 1, 1}, "reflect");
  expect(nn::ReplicationPad2d(3), image, {3, 3, 3, 3}, "replicate");
  expect(nn::CircularPad1d({1, 2}), line, {1, 2}, "circular");
  expect(nn::ConstantPad2d(1, 3.5), image, {1, 1, 1, 1}, "constant", 3.5);
  expect(nn::ZeroPad2d({-1, 1, 0, 2}), image, {-1, 1, 0, 2}, "constant");
  expect_error<InvalidArgumentError>(
      [] {
        nn::ZeroPad2d({1, 2});
      },
      "[pad] expected one number or 4, got 2");
}

TEST(ShufflingModules, MoveElements) {
  const Tensor x = random_tensor({2, 8, 3, 4}, 1);
  const Values in = values_of(x);
  Values expected;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t c = 0; c < 2; ++c)
      for (std::int64_t h = 0; h < 6; ++h)
        for (std::int64_t w = 0; w < 8; ++w)
          expected.push_back(in[static_cast<std::size_t>(
              ((n * 8 + c * 4 + h % 2 * 2 + w % 2) * 3 + h / 2) * 4 + w / 2)]);
  const auto shuffle = [](const Tensor& t) { return F::pixel_shuffle(t, 2); };
  expect_tensor(shuffle(x), float64, {2, 2, 6, 8}, expected);
  expect_tensor(nn::PixelShuffle(2)(x[0]), float64, {2, 6, 8}, values_of(shuffle(x)[0]));
  expect_tensor(nn::PixelUnshuffle(2)(shuffle(x)), float64, {2, 8, 3, 4}, in);
  const FunctionOptions unknown{.input_signature = {{Shape{-1, 8, -1, -1}, float64}}};
  expect_tensor(function(shuffle, unknown)(x), float64, {2, 2, 6, 8}, expected);
  expect_gradients([&](const std::vector<Tensor>& t) { return shuffle(t[0]); }, {x});
  const Tensor channels = F::channel_shuffle(x, 2);
  for (std::int64_t c = 0; c < 8; ++c)
    expect_tensor(channels(Slice{}, c), float64, {2, 3, 4},
                  values_of(x(Slice{}, c % 2 * 4 + c / 2)));
  expect_tensor(nn::ChannelShuffle(4)(channels), float64, {2, 8, 3, 4}, in);
  EXPECT_EQ(nn::Unflatten(1, {2, -1})(x).shape(), Shape({2, 2, 4, 3, 4}));
  EXPECT_EQ(nn::Unflatten(-1, {2, 2})(x).shape(), Shape({2, 8, 3, 2, 2}));
  expect_error<ShapeError>([&] { nn::Unflatten(1, {3, -1})(x); }, "[unflatten] expected sizes");
  expect_error<ShapeError>([&] { F::pixel_shuffle(x, 3); }, "[pixel_shuffle] expected a size of");
  expect_error<ShapeError>([&] { F::pixel_unshuffle(x, 2); }, "axis -2 that 2 divides");
  expect_error<ShapeError>([&] { F::channel_shuffle(x, 3); }, "axis 1 that 3 divides");
  expect_error<InvalidArgumentError>([&] { F::pixel_shuffle(x, 0); }, "a factor of 1 or more");
}

TEST(VolumeLayers, AreChannelsLast) {
  const Tensor x = random_tensor({2, 5, 4, 6, 2}, 1);
  layers::Conv3D conv(
      4, {3, 2, 2},
      {.strides = {2, 1, 2}, .padding = "same", .activation = "tanh", .dtype = "float64"});
  const Tensor y = conv(x);
  EXPECT_EQ(y.shape(), Shape({2, 3, 4, 3, 4}));
  EXPECT_EQ(infer(conv, {-1, 5, -1, 6, 2}), (Shape{-1, 3, -1, 3, 4}));
  const std::vector<Variable> v = conv.variables();
  EXPECT_EQ(v[0].shape(), Shape({3, 2, 2, 2, 4}));
  // TensorFlow's "same": the odd element of the padding goes to the end.
  const Tensor padded = pad(x, {{0, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 0}});
  expect_tensor(y, float64, y.shape(),
                values_of(tanh(nn::conv3d(padded, v[0], v[1], {.strides = {2, 1, 2}}))), 1e-12);
  const layers::MaxPooling3D pool(2, {.padding = "same", .dtype = "float64"});
  const Tensor lowest = pad(x, {{0, 0}, {0, 1}, {0, 0}, {0, 0}, {0, 0}}, -1e300);
  expect_tensor(pool(x), float64, {2, 3, 2, 3, 2}, values_of(nn::max_pool3d(lowest)));
  EXPECT_EQ(infer(pool, {-1, 5, 4, 6, 2}), (Shape{-1, 3, 2, 3, 2}));
  const layers::AveragePooling3D mean({1, 2, 3}, {.strides = nn::Triple(1), .dtype = "float64"});
  expect_tensor(mean(x), float64, {2, 5, 3, 4, 2},
                values_of(nn::avg_pool3d(x, {.window = {1, 2, 3}, .strides = nn::Triple(1)})));
  expect_tensor(layers::GlobalAveragePooling3D({.dtype = "float64"})(x), float64, {2, 2},
                values_of(reduce_mean(x, {.axis = Dims{1, 2, 3}})), 1e-12);
  expect_tensor(layers::GlobalMaxPooling3D({.keepdims = true, .dtype = "float64"})(x), float64,
                {2, 1, 1, 1, 2}, values_of(reduce_max(x, {.axis = Dims{1, 2, 3}})));
  expect_error<InvalidArgumentError>([] { layers::Conv3D(4, 3, {.strides = 0}); },
                                     "[conv3d] expected a positive stride, got 0 x 0 x 0");
  expect_error<InvalidArgumentError>([&] { layers::Conv3D(4, 7)(x); },
                                     "as large as the windows of");
  expect_error<InvalidArgumentError>([] { layers::MaxPooling3D(2, {.padding = 2}); },
                                     "[max_pooling3d] expected a padding below the window");
  expect_error<InvalidArgumentError>(
      [] {
        layers::Conv3D(4, 3)(ones({2, 5, 5, 2}));
      },
      "an input of shape (batch, depth, height, width, channels)");
}

}  // namespace
}  // namespace tandem::convolution_modules_test
