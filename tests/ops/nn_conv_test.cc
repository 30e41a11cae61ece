#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "ops/nn_reference.h"
#include "support/thread_counts.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn_conv_test {
namespace {

using nn::Activation;
using nn::Conv2DOptions;
using nn::Padding;
using namespace testing;

std::int64_t size_of_result(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                            std::int64_t dilation, Padding padding,
                            const nn::WindowPadding::Sides& sides) {
  if (padding == Padding::kSame) return (size + stride - 1) / stride;
  return (size + sides.first + sides.second - (kernel - 1) * dilation - 1) / stride + 1;
}

// The convolution by definition, with the padding as TensorFlow documents it.
std::vector<double> convolve(const Tensor& x, const Tensor& kernel, const Tensor& bias,
                             const Conv2DOptions& options) {
  const std::vector<double> in = values_of(x), taps = values_of(kernel),
                            shift = bias.defined() ? values_of(bias) : std::vector<double>();
  const std::int64_t n = x.dim(0), h = x.dim(1), w = x.dim(2), channels = x.dim(3);
  const std::int64_t kh = kernel.dim(0), kw = kernel.dim(1), per_group = kernel.dim(2),
                     out = kernel.dim(3);
  const std::int64_t oh = size_of_result(h, kh, options.strides.height, options.dilations.height,
                                         options.padding.kind(), options.padding.rows());
  const std::int64_t ow = size_of_result(w, kw, options.strides.width, options.dilations.width,
                                         options.padding.kind(), options.padding.columns());
  const auto before = [&](std::int64_t size, std::int64_t result, std::int64_t k,
                          std::int64_t stride, std::int64_t dilation,
                          const nn::WindowPadding::Sides& sides) {
    if (options.padding.kind() != Padding::kSame) return sides.first;
    return std::max<std::int64_t>(0, (result - 1) * stride + (k - 1) * dilation + 1 - size) / 2;
  };
  const std::int64_t top =
      before(h, oh, kh, options.strides.height, options.dilations.height, options.padding.rows());
  const std::int64_t left =
      before(w, ow, kw, options.strides.width, options.dilations.width, options.padding.columns());
  std::vector<double> result;
  for (std::int64_t b = 0; b < n; ++b)
    for (std::int64_t y = 0; y < oh; ++y)
      for (std::int64_t z = 0; z < ow; ++z)
        for (std::int64_t o = 0; o < out; ++o) {
          const std::int64_t group = o / (out / options.groups);
          double sum = shift.empty() ? 0.0 : shift[static_cast<std::size_t>(o)];
          for (std::int64_t i = 0; i < kh; ++i)
            for (std::int64_t j = 0; j < kw; ++j)
              for (std::int64_t c = 0; c < per_group; ++c) {
                const std::int64_t row =
                    y * options.strides.height - top + i * options.dilations.height;
                const std::int64_t column =
                    z * options.strides.width - left + j * options.dilations.width;
                if (row < 0 || row >= h || column < 0 || column >= w) continue;
                sum += in[static_cast<std::size_t>(((b * h + row) * w + column) * channels +
                                                   group * per_group + c)] *
                       taps[static_cast<std::size_t>(((i * kw + j) * per_group + c) * out + o)];
              }
          result.push_back(sum);
        }
  return result;
}

struct Case {
  Shape x, kernel;
  Conv2DOptions options;
};

const std::vector<Case>& cases() {
  constexpr Padding kSame = Padding::kSame, kValid = Padding::kValid;
  static const std::vector<Case> all = {
      {{2, 5, 6, 3}, {3, 3, 3, 4}, {}},
      {{2, 5, 6, 3}, {3, 3, 3, 4}, {.padding = kSame}},
      {{2, 6, 5, 2}, {2, 3, 2, 5}, {.padding = kSame}},  // even kernel: odd pixel at the end
      {{1, 7, 8, 2}, {3, 3, 2, 3}, {.strides = 2, .padding = kSame}},
      {{1, 8, 7, 2}, {3, 2, 2, 3}, {.strides = {2, 3}, .padding = kSame}},
      {{1, 9, 9, 2}, {3, 3, 2, 3}, {.strides = {3, 2}, .padding = kValid}},
      {{2, 6, 6, 3}, {1, 1, 3, 7}, {}},
      {{2, 6, 6, 3}, {1, 1, 3, 7}, {.strides = 2, .padding = kSame}},
      {{1, 9, 10, 2}, {3, 3, 2, 3}, {.padding = kSame, .dilations = {2, 3}}},
      {{1, 9, 10, 2}, {3, 2, 2, 3}, {.padding = kValid, .dilations = 2}},
      {{2, 6, 5, 4}, {3, 3, 2, 6}, {.padding = kSame, .groups = 2}},
      {{2, 6, 5, 4}, {3, 3, 1, 4}, {.strides = 2, .padding = kSame, .groups = 4}},  // depthwise
      {{1, 6, 5, 3}, {3, 3, 1, 6}, {.padding = kValid, .groups = 3}},
      {{1, 1, 1, 1}, {3, 3, 1, 1}, {.padding = kSame}},  // all padding but one tap
      {{2, 7, 8, 3}, {7, 7, 3, 4}, {.strides = 2, .padding = 3}},
      {{2, 5, 6, 2}, {3, 2, 2, 3}, {.padding = {1, 2}}},
      {{1, 6, 5, 2}, {3, 3, 2, 3}, {.strides = {2, 1}, .padding = {{0, 3}, {2, 1}}}},
      {{1, 6, 7, 4}, {3, 3, 2, 6}, {.padding = {{4, 0}, {0, 5}}, .dilations = {2, 3}, .groups = 2}},
      {{1, 2, 1, 2}, {1, 1, 2, 3}, {.padding = {{1, 0}, {0, 2}}}},  // pixels of padding alone
      {{1, 4, 4, 17}, {4, 4, 17, 33}, {}},  // a window as large as the image
      {{3, 6, 6, 32}, {3, 3, 32, 16}, {.padding = kSame}}};
  return all;
}

TensorFunction function_of(const Conv2DOptions& options) {
  return [options](const std::vector<Tensor>& in) {
    return nn::conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), options);
  };
}

std::vector<Tensor> inputs_of(const Case& c) {
  return {random_tensor(c.x, 1, -1, 1), random_tensor(c.kernel, 2, -0.5, 0.5),
          random_tensor({c.kernel[3]}, 3, -1, 1)};
}

TEST(Conv2D, AgreesWithTheDefinition) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.x.to_string() + c.kernel.to_string());
    const std::vector<Tensor> in = inputs_of(c);
    const Shape result{
        c.x[0],
        size_of_result(c.x[1], c.kernel[0], c.options.strides.height, c.options.dilations.height,
                       c.options.padding.kind(), c.options.padding.rows()),
        size_of_result(c.x[2], c.kernel[1], c.options.strides.width, c.options.dilations.width,
                       c.options.padding.kind(), c.options.padding.columns()),
        c.kernel[3]};
    expect_tensor(nn::conv2d(in[0], in[1], in[2], c.options), float64, result,
                  convolve(in[0], in[1], in[2], c.options), 1e-12);
    expect_tensor(nn::conv2d(in[0], in[1], {}, c.options), float64, result,
                  convolve(in[0], in[1], {}, c.options), 1e-12);
  }
}

TEST(Conv2D, OtherDtypesAgreeWithFloat64) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.x.to_string() + c.kernel.to_string());
    std::vector<Tensor> in = inputs_of(c);
    expect_other_dtypes_like_float64(function_of(c.options), in, 30);
    in.pop_back();
    expect_like_float64(function_of(c.options), in, float32, 1e-5);
  }
}

TEST(Conv2D, HasRightGradients) {
  for (const Case& c : cases()) {
    if (c.x.num_elements() > 500 || c.kernel.num_elements() > 500) continue;
    SCOPED_TRACE(c.x.to_string() + c.kernel.to_string());
    std::vector<Tensor> in = inputs_of(c);
    expect_gradients(function_of(c.options), in);
    in.pop_back();
    expect_gradients(function_of(c.options), in);
  }
}

TEST(Conv2D, HasRightSecondDerivatives) {
  for (const Conv2DOptions& options :
       {Conv2DOptions{},
        Conv2DOptions{.strides = 2, .padding = Padding::kSame, .activation = Activation::kTanh},
        Conv2DOptions{.padding = Padding::kSame, .groups = 2}})
    expect_second_order(
        function_of(options),
        {random_tensor({1, 4, 3, 2}, 1, -1, 1),
         random_tensor({2, 2, 2 / options.groups, 2}, 2, -0.5, 0.5), random_tensor({2}, 3, -1, 1)});
}

TEST(Conv2D, FusesActivations) {
  for (const Activation activation :
       {Activation::kRelu, Activation::kRelu6, Activation::kElu, Activation::kSigmoid,
        Activation::kTanh, Activation::kGelu, Activation::kSoftmax}) {
    SCOPED_TRACE(static_cast<int>(activation));
    Conv2DOptions options{.padding = Padding::kSame};
    const std::vector<Tensor> in = inputs_of(cases()[1]);
    for (const DType dtype : {float32, float64}) {
      options.activation = Activation::kLinear;
      const Tensor linear =
          nn::conv2d(cast(in[0], dtype), cast(in[1], dtype), cast(in[2], dtype), options);
      options.activation = activation;
      const Tensor fused =
          nn::conv2d(cast(in[0], dtype), cast(in[1], dtype), cast(in[2], dtype), options);
      expect_tensor(fused, dtype, linear.shape(), values_of(nn::activate(linear, activation)),
                    dtype == float32 ? 2e-6 : 1e-14);
    }
    expect_gradients(function_of(options), in);
  }
}

TEST(Conv2D, KeepsNaNThroughActivations) {
  for (const DType dtype : testing::kFloatingTypes) {
    const Tensor x =
        full({1, 5, 5, 16}, std::numeric_limits<double>::quiet_NaN(), {.dtype = dtype});
    const Tensor y = nn::conv2d(x, ones({3, 3, 16, 16}, {.dtype = dtype}), {},
                                {.activation = Activation::kRelu});
    for (double value : values_of(y)) ASSERT_TRUE(std::isnan(value)) << name_of(dtype);
  }
}

TEST(Conv2D, ComputesOnlyTheGradientsThatAreNeeded) {
  const std::vector<Tensor> in = inputs_of(cases()[1]);
  for (std::size_t which = 0; which < 3; ++which)
    expect_gradients(
        [&](const std::vector<Tensor>& only) {
          std::vector<Tensor> arguments = in;
          arguments[which] = only[0];
          return nn::conv2d(arguments[0], arguments[1], arguments[2], {.padding = Padding::kSame});
        },
        {in[which]});
}

TEST(DepthwiseConv2D, FiltersEachChannelSeparately) {
  const Tensor x = random_tensor({2, 5, 6, 3}, 4), kernel = random_tensor({3, 2, 3, 2}, 5),
               bias = random_tensor({6}, 6);
  const Conv2DOptions options{.strides = 2, .padding = Padding::kSame};
  const Tensor y = nn::depthwise_conv2d(x, kernel, bias, options);
  // Only channel c of x contributes to channels 2 c and 2 c + 1.
  for (std::int64_t c = 0; c < 3; ++c) {
    const Tensor alone = nn::conv2d(slice(x, {0, 0, 0, c}, {-1, -1, -1, 1}),
                                    slice(kernel, {0, 0, c, 0}, {-1, -1, 1, -1}),
                                    slice(bias, {2 * c}, {2}), options);
    expect_tensor(slice(y, {0, 0, 0, 2 * c}, {-1, -1, -1, 2}), float64, alone.shape(),
                  values_of(alone), 1e-13);
  }
  const auto f = [&](const std::vector<Tensor>& in) {
    return nn::depthwise_conv2d(in[0], in[1], in[2], options);
  };
  expect_gradients(f, {x, kernel, bias});
  expect_other_dtypes_like_float64(f, {x, kernel, bias}, 30);
}

TEST(Conv2D, HandlesEmptyBatches) {
  for (const DType dtype : testing::kFloatingTypes) {
    const CreationOptions type{.dtype = dtype};
    const Tensor x = ones({0, 4, 4, 2}, type), kernel = ones({3, 3, 2, 5}, type),
                 bias = ones({5}, type);
    GradientTape tape;
    for (const Tensor& tensor : {x, kernel, bias}) tape.watch(tensor);
    const Tensor y = nn::conv2d(x, kernel, bias, {.activation = Activation::kRelu});
    expect_tensor(y, dtype, {0, 2, 2, 5}, {});
    const auto grads = tape.gradient(y, {x, kernel, bias});
    expect_tensor(grads[0], dtype, {0, 4, 4, 2}, {});
    expect_tensor(grads[1], dtype, {3, 3, 2, 5}, std::vector<double>(90, 0.0));
    expect_tensor(grads[2], dtype, {5}, std::vector<double>(5, 0.0));
  }
}

// The sums over all pixels of a batch are divided in a way that depends only on the shape.
TEST(Conv2D, KernelGradientsHaveTheSameBitsWithAnyTeam) {
  const std::tuple<Shape, Shape, Conv2DOptions> cases[] = {
      {{16, 28, 28, 1}, {5, 5, 1, 6}, {}},
      {{13, 14, 14, 6}, {5, 5, 6, 16}, {}},
      {{9, 16, 16, 32}, {3, 3, 32, 64}, {.padding = Padding::kSame}},
      {{3, 7, 7, 64}, {3, 3, 64, 160}, {.padding = Padding::kSame}},
      {{8, 17, 17, 3}, {7, 7, 3, 24}, {.strides = 2, .padding = Padding::kSame}},
      {{6, 12, 12, 16}, {3, 3, 4, 32}, {.dilations = 2, .groups = 4}},
      {{11, 14, 14, 48}, {3, 3, 1, 48}, {.padding = Padding::kSame, .groups = 48}},
      {{32, 14, 14, 64}, {1, 1, 64, 32}, {}},
  };
  expect_same_bits_with_any_team([&] {
    std::vector<double> gradients;
    for (const DType dtype : {float32, bfloat16})
      for (const auto& [shape, taps, options] : cases) {
        const Tensor x = random_tensor(shape, 1, -1, 1, dtype);
        const Tensor kernel = random_tensor(taps, 2, -1, 1, dtype);
        GradientTape tape;
        tape.watch(kernel);
        const Tensor y = nn::conv2d(x, kernel, {}, options);
        const Tensor weights = random_tensor(y.shape(), 3, -1, 1, dtype);
        const std::vector<double> gradient =
            values_of(tape.gradient(y, kernel, {.output_gradient = weights}));
        gradients.insert(gradients.end(), gradient.begin(), gradient.end());
      }
    return gradients;
  });
}

// Parts along the batch and along the channels, of equal and unequal sizes, compared with float64.
TEST(Conv2D, LargeKernelGradientsAreLikeFloat64) {
  const std::pair<Shape, Shape> cases[] = {{{5, 14, 14, 32}, {3, 3, 32, 64}},
                                           {{3, 9, 9, 48}, {3, 3, 48, 64}},
                                           {{21, 28, 28, 2}, {5, 5, 2, 7}}};
  // Thousands of products are summed, so the rounding errors may exceed small results.
  for (const auto& [shape, taps] : cases)
    for (const auto& [dtype, tolerance] :
         {std::pair{float32, 5e-4}, std::pair{float16, 0.06}, std::pair{bfloat16, 0.5}})
      expect_like_float64([](const std::vector<Tensor>& in) { return nn::conv2d(in[0], in[1]); },
                          {random_tensor(shape, 1), random_tensor(taps, 2)}, dtype, tolerance);
}

TEST(Conv2D, ExplainsBadInput) {
  const Tensor x = ones({1, 5, 5, 4}), kernel = ones({3, 3, 4, 2});
  expect_error<InvalidArgumentError>(
      [&] {
        nn::conv2d(ones({5, 5, 4}), kernel);
      },
      "[Conv2D] expected images [n, h, w, in] and a kernel [kh, kw, in / groups, out]");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::conv2d(x, ones({3, 3, 3, 2}));
      },
      "got shape (3, 3, 3, 2)");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::conv2d(x, ones({3, 3, 2, 3}), {}, {.groups = 2});
      },
      "in 2 groups");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::conv2d(x, ones({6, 6, 4, 2}));
      },
      "expected images as large as the 6x6 kernel (dilation 1x1), got shape (1, 5, 5, 4)");
  expect_error<InvalidArgumentError>([&] { nn::conv2d(x, kernel, ones({3})); },
                                     "[Conv2D] expected a bias of shape (2,), got (3,)");
  expect_error<InvalidArgumentError>(
      [&] { nn::conv2d(x, kernel, {}, {.strides = 0}); },
      "expected strides, dilations and groups of 1 or more, got 0x0");
  expect_error<InvalidArgumentError>([&] { nn::conv2d(x, cast(kernel, float64)); },
                                     "expected one dtype, got float32 and float64");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::conv2d(x, ones({3, 0, 4, 2}));
      },
      "expected a kernel that is not empty");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::depthwise_conv2d(x, ones({3, 3, 3, 1}));
      },
      "[DepthwiseConv2D] expected");
  expect_error<InvalidArgumentError>([] { nn::padding_from_name("full"); },
                                     "[padding] expected 'valid' or 'same', got 'full'");
  EXPECT_EQ(nn::padding_from_name("SAME"), Padding::kSame);
  expect_error<InvalidArgumentError>(
      [&] {
        nn::conv2d(x, ones({6, 6, 4, 2}), {}, {.padding = {{0, 0}, {1, 1}}});
      },
      "expected images with their padding as large as the 6x6 kernel");
  expect_error<InvalidArgumentError>([] { nn::WindowPadding(1, -1); },
                                     "[padding] expected numbers of 0 or more, got 1, 1, -1 and");
  expect_error<InvalidArgumentError>([] { nn::WindowPadding("full"); }, "got 'full'");
  expect_error<InvalidArgumentError>([] { nn::WindowPadding{Padding::kExplicit}; }, "numbers");
}

TEST(Conv2D, TakesPaddingsOfUnknownSizes) {
  const Tensor x = random_tensor({2, 5, 6, 3}, 1), kernel = random_tensor({3, 3, 3, 4}, 2);
  const Conv2DOptions options{.strides = 2, .padding = {{1, 2}, {0, 1}}};
  const auto traced =
      function([&](const Tensor& in) { return nn::conv2d(in, kernel, {}, options); },
               {.input_signature = {{Shape{-1, -1, -1, 3}, float64}}});
  const Tensor expected = nn::conv2d(x, kernel, {}, options);
  expect_tensor(traced(x), float64, expected.shape(), values_of(expected));
}

// The transposed convolution is the gradient of the convolution of the same options.
TEST(Conv2DTranspose, IsTheGradientOfAConvolution) {
  struct Case {
    Shape image, kernel;
    Conv2DOptions options;
    nn::OptionalPair output_padding;
  };
  const Case all[] = {
      {{2, 9, 8, 4}, {3, 2, 4, 5}, {}, {}},
      {{2, 8, 8, 4}, {3, 3, 4, 5}, {.strides = 2, .padding = Padding::kSame}, {}},
      {{2, 12, 9, 4}, {3, 3, 4, 5}, {.strides = {3, 2}, .padding = 1}, nn::Pair(2, 0)},
      {{1, 7, 8, 4}, {4, 3, 4, 5}, {.padding = {{1, 0}, {2, 1}}}, {}},
      {{1, 11, 12, 4},
       {3, 3, 2, 6},
       {.strides = 2, .padding = 2, .dilations = 2, .groups = 2},
       nn::Pair(0, 1)},
  };
  for (const Case& c : all) {
    SCOPED_TRACE(c.image.to_string() + c.kernel.to_string());
    const Tensor kernel = random_tensor(c.kernel, 2), image = random_tensor(c.image, 1);
    const nn::Conv2DTransposeOptions options{.strides = c.options.strides,
                                             .padding = c.options.padding,
                                             .output_padding = c.output_padding,
                                             .dilations = c.options.dilations,
                                             .groups = c.options.groups};
    GradientTape tape;
    tape.watch(image);
    const Tensor y = nn::conv2d(image, kernel, {}, c.options);
    const Tensor dy = random_tensor(y.shape(), 3), bias = random_tensor({4}, 4);
    const Tensor gradient = tape.gradient(reduce_sum(y * dy), image);
    const Tensor result = nn::conv2d_transpose(dy, kernel, {}, options);
    expect_tensor(result, float64, c.image, values_of(gradient), 1e-12);
    const Tensor shifted = nn::conv2d_transpose(dy, kernel, bias, options);
    expect_tensor(shifted, float64, c.image, values_of(result + bias), 1e-12);
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return nn::conv2d_transpose(in[0], in[1], in[2], options);
        },
        {slice_rows(dy, 0, 1), kernel, bias});
    const auto traced =
        function([&](const Tensor& in) { return nn::conv2d_transpose(in, kernel, bias, options); },
                 {.input_signature = {{Shape{-1, -1, -1, dy.dim(3)}, float64}}});
    expect_tensor(traced(dy), float64, c.image, values_of(shifted));
  }
}

// More than the strides, which dilations allow: rows that only the bias reaches.
TEST(Conv2DTranspose, PadsItsResult) {
  const Tensor x = random_tensor({1, 3, 3, 2}, 1), kernel = random_tensor({2, 2, 2, 2}, 2);
  const Tensor plain = nn::conv2d_transpose(x, kernel, {}, {.padding = 0, .dilations = 4});
  const Tensor more =
      nn::conv2d_transpose(x, kernel, ones({2}, float64),
                           {.padding = 0, .output_padding = nn::Pair(3, 1), .dilations = 4});
  expect_tensor(more, float64, {1, 10, 8, 2},
                values_of(pad(plain, {{0, 0}, {0, 3}, {0, 1}, {0, 0}}) + 1.0));
  const Tensor undone = nn::conv2d_transpose(
      x, kernel, {}, {.padding = 2, .output_padding = nn::Pair(2, 1), .dilations = 4});
  expect_tensor(undone, float64, {1, 5, 4, 2},
                values_of(slice(plain, {0, 2, 2, 0}, {-1, 5, 4, -1})));
}

TEST(Conv2DTranspose, RefusesWhatNoConvolutionReverses) {
  const Tensor x = ones({1, 4, 4, 3}), kernel = ones({3, 3, 2, 3});
  expect_error<ShapeError>(
      [&] {
        nn::conv2d_transpose(x, ones({3, 3, 2, 4}));
      },
      "[Conv2DTranspose] expected images [n, h, w, in]");
  expect_error<InvalidArgumentError>(
      [&] { nn::conv2d_transpose(x, kernel, {}, {.strides = 2, .output_padding = 2}); },
      "expected an output_padding of 0 or more and less than the stride 2 or the dilation 1, got "
      "2");
  expect_error<InvalidArgumentError>([&] { nn::conv2d_transpose(x, kernel, {}, {.strides = 0}); },
                                     "strides, dilations and groups of 1 or more");
  expect_error<ShapeError>([&] { nn::conv2d_transpose(x, kernel, {}, {.padding = 3}); },
                           "expected a result of at least one pixel, got 0 x 0");
}

}  // namespace
}  // namespace tandem::nn_conv_test
