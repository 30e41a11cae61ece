// PyTorch's modules for images, channels-first, against plain loops; and batch normalization.
#include "tandem/image_modules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::image_modules_test {
namespace {

using namespace testing;

// out[n][o][i][j] of a convolution, by loops.
std::vector<double> convolved(const Tensor& x, const Tensor& w, const Tensor& b,
                              std::int64_t stride, std::int64_t padding, std::int64_t groups) {
  const std::vector<double> in = values_of(x), weight = values_of(w), bias = values_of(b);
  const std::int64_t channels = x.dim(1), height = x.dim(2), width = x.dim(3), outputs = w.dim(0),
                     each = w.dim(1), kernel = w.dim(2);
  const std::int64_t rows = (height + 2 * padding - kernel) / stride + 1,
                     columns = (width + 2 * padding - kernel) / stride + 1;
  std::vector<double> result;
  for (std::int64_t n = 0; n < x.dim(0); ++n)
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          double sum = bias[static_cast<std::size_t>(o)];
          const std::int64_t first = o / (outputs / groups) * each;
          for (std::int64_t c = 0; c < each; ++c)
            for (std::int64_t p = 0; p < kernel; ++p)
              for (std::int64_t q = 0; q < kernel; ++q) {
                const std::int64_t row = i * stride + p - padding,
                                   column = j * stride + q - padding;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                sum += in[static_cast<std::size_t>(
                           ((n * channels + first + c) * height + row) * width + column)] *
                       weight[static_cast<std::size_t>(((o * each + c) * kernel + p) * kernel + q)];
              }
          result.push_back(sum);
        }
  return result;
}

TEST(Conv2dModule, ConvolvesImagesWithChannelsFirst) {
  random::set_seed(2);
  const Tensor x = random::normal({2, 4, 6, 5});
  for (const std::int64_t groups : {1, 2}) {
    nn::Conv2d conv(4, 6, 3, {.stride = 2, .padding = 1, .groups = groups});
    EXPECT_EQ(conv->weight.shape(), Shape({6, 4 / groups, 3, 3}));
    const Tensor y = conv(x);
    EXPECT_EQ(y.shape(), Shape({2, 6, 3, 3}));
    const std::vector<double> expected = convolved(x, conv->weight, conv->bias, 2, 1, groups),
                              actual = values_of(y);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5);
  }
  const double bound = 1.0 / std::sqrt(4.0 * 9.0);
  EXPECT_LE(nn::Conv2d(4, 6, 3)->weight.value().abs().max().item(), bound);
}

TEST(Conv2dModule, TakesOptionsInBothForms) {
  nn::Conv2d chained(nn::Conv2dOptions(1, 8, 3).stride(2).padding(1).bias(false));
  EXPECT_FALSE(chained->bias.defined());
  EXPECT_EQ(chained(zeros({1, 1, 8, 8})).shape(), Shape({1, 8, 4, 4}));
  EXPECT_EQ(nn::Conv2d(1, 2, 5, 1, 2)(zeros({1, 1, 8, 8})).shape(), Shape({1, 2, 8, 8}));
  EXPECT_EQ(nn::Conv2d(1, 2, {1, 3})(zeros({1, 1, 8, 8})).shape(), Shape({1, 2, 8, 6}));
}

TEST(Conv2dModule, NamesImagesOfAnotherLayout) {
  nn::Conv2d conv(3, 8, 3);
  expect_error<ShapeError>(
      [&] {
        conv(zeros({2, 28, 28, 3}));
      },
      "they look channels-last: write x.permute({0, 3, 1, 2})");
  expect_error<ShapeError>(
      [&] {
        conv(zeros({2, 4, 28, 28}));
      },
      "expected images (batch, 3, height, width), got shape (2, 4, 28, 28)");
  expect_error<ShapeError>([&] { conv(zeros({28, 28})); }, "expected images");
  expect_error<InvalidArgumentError>([] { nn::Conv2d(3, 8, 3, {.groups = 2}); }, "groups");
  expect_error<InvalidArgumentError>(
      [] {
        nn::MaxPool2d(2, {.padding = 2})(zeros({1, 1, 4, 4}));
      },
      "at most half of the window");
}

TEST(Conv2dModule, HasAGradient) {
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return nn::functional::conv2d(in[0], in[1], in[2], {.stride = 2, .padding = 1});
      },
      {random_tensor({1, 2, 5, 4}), random_tensor({3, 2, 3, 3}), random_tensor({3})});
}

TEST(Pool2dModules, PoolWindows) {
  const Tensor x = range(0, 16, 1).to(float32).view({1, 1, 4, 4});
  expect_tensor(nn::MaxPool2d(2)(x), float32, {1, 1, 2, 2}, {5, 7, 13, 15});
  expect_tensor(max_pool2d(x, 2, {.stride = 1}), float32, {1, 1, 3, 3},
                {5, 6, 7, 9, 10, 11, 13, 14, 15});
  expect_tensor(nn::MaxPool2d(3, {.stride = 2, .padding = 1})(negative(x)), float32, {1, 1, 2, 2},
                {0, -1, -4, -5});
  expect_tensor(nn::AvgPool2d(2)(x), float32, {1, 1, 2, 2}, {2.5, 4.5, 10.5, 12.5});
  // PyTorch's mean counts the padding.
  expect_tensor(avg_pool2d(ones({1, 1, 2, 2}), 2, {.padding = 1}), float32, {1, 1, 2, 2},
                {0.25, 0.25, 0.25, 0.25});
  expect_tensor(nn::AdaptiveAvgPool2d(1)(x), float32, {1, 1, 1, 1}, {7.5});
  expect_tensor(nn::AdaptiveAvgPool2d(2)(x), float32, {1, 1, 2, 2}, {2.5, 4.5, 10.5, 12.5});
  expect_tensor(nn::AdaptiveAvgPool2d({4, 1})(x), float32, {1, 1, 4, 1}, {1.5, 5.5, 9.5, 13.5});
  expect_tensor(nn::AdaptiveMaxPool2d({1, 3})(x), float32, {1, 1, 1, 3}, {13, 14, 15});
  expect_tensor(nn::MaxPool2d(3, 2, 1)(x(0)), float32, {1, 2, 2}, {5, 7, 13, 15});
}

// Window `i` of an axis of `size` elements: its first element, and the end of its elements with and
// without those of the padding.
struct PoolAxis {
  std::int64_t size, window, stride, padding, dilation;
  bool ceil;
  std::int64_t count() const {
    const std::int64_t room = size + 2 * padding - (window - 1) * dilation - 1;
    std::int64_t windows = (room + (ceil ? stride - 1 : 0)) / stride + 1;
    if (ceil && (windows - 1) * stride >= size + padding) --windows;
    return windows;
  }
};

// The result of pooling [rows, columns] in double, by PyTorch's documentation.
std::vector<double> pooled(const std::vector<double>& x, const PoolAxis& rows,
                           const PoolAxis& columns, bool average, bool count_padding,
                           std::int64_t divisor) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < rows.count(); ++i)
    for (std::int64_t j = 0; j < columns.count(); ++j) {
      double best = -1e300, sum = 0.0, inside = 0.0, all = 0.0;
      for (std::int64_t p = 0; p < rows.window; ++p)
        for (std::int64_t q = 0; q < columns.window; ++q) {
          const std::int64_t row = i * rows.stride - rows.padding + p * rows.dilation,
                             column = j * columns.stride - columns.padding + q * columns.dilation;
          if (row < rows.size + rows.padding && column < columns.size + columns.padding) all += 1.0;
          if (row < 0 || row >= rows.size || column < 0 || column >= columns.size) continue;
          const double value = x[static_cast<std::size_t>(row * columns.size + column)];
          best = std::max(best, value);
          sum += value;
          inside += 1.0;
        }
      result.push_back(!average      ? best
                       : divisor > 0 ? sum / static_cast<double>(divisor)
                                     : sum / (count_padding ? all : inside));
    }
  return result;
}

TEST(Pool2dModules, EqualPyTorchsDefinition) {
  const Tensor x = random_tensor({1, 1, 7, 8}, 1);
  const std::vector<double> values = values_of(x);
  struct Case {
    nn::Pair window, stride, padding, dilation;
  };
  for (const Case& c : {Case{3, 2, 1, 1}, Case{{2, 3}, {3, 2}, {1, 0}, 1}, Case{2, 3, 1, 1},
                        Case{{4, 2}, 5, {2, 1}, 1}, Case{2, 2, 1, {3, 2}}})
    for (const bool ceil : {false, true}) {
      const PoolAxis rows{
          7, c.window.height, c.stride.height, c.padding.height, c.dilation.height, ceil},
          columns{8, c.window.width, c.stride.width, c.padding.width, c.dilation.width, ceil};
      const Shape shape{1, 1, rows.count(), columns.count()};
      SCOPED_TRACE(shape.to_string());
      const auto maximum = [&](const Tensor& in) {
        return nn::functional::max_pool2d(
            in, c.window,
            {.stride = c.stride, .padding = c.padding, .dilation = c.dilation, .ceil_mode = ceil});
      };
      expect_tensor(maximum(x), float64, shape, pooled(values, rows, columns, false, false, 0));
      expect_gradients([&](const std::vector<Tensor>& in) { return maximum(in[0]); }, {x});
      const FunctionOptions unknown{.input_signature = {{Shape{-1, -1, -1, -1}, float64}}};
      expect_tensor(function(maximum, unknown)(x), float64, shape, values_of(maximum(x)));
      if (c.dilation != nn::Pair(1)) continue;
      for (const int how : {0, 1, 2}) {
        nn::AvgPool2dArguments options{.stride = c.stride,
                                       .padding = c.padding,
                                       .ceil_mode = ceil,
                                       .count_include_pad = how == 1};
        if (how == 2) options.divisor_override = 5;
        const auto average = [&](const Tensor& in) {
          return nn::functional::avg_pool2d(in, c.window, options);
        };
        expect_tensor(average(x), float64, shape,
                      pooled(values, rows, columns, true, how == 1, how == 2 ? 5 : 0), 1e-12);
        expect_gradients([&](const std::vector<Tensor>& in) { return average(in[0]); }, {x});
        expect_tensor(function(average, unknown)(x), float64, shape, values_of(average(x)), 1e-12);
      }
    }
}

TEST(AdaptivePools, CoverTheImage) {
  const Tensor x = random_tensor({2, 3, 7, 5}, 2);
  const std::vector<double> values = values_of(x);
  for (const nn::Pair size : {nn::Pair(3, 2), nn::Pair(7, 5), nn::Pair(1, 5), nn::Pair(9, 4)}) {
    std::vector<double> means, maxima;
    for (std::int64_t image = 0; image < 6; ++image)
      for (std::int64_t i = 0; i < size.height; ++i)
        for (std::int64_t j = 0; j < size.width; ++j) {
          double sum = 0.0, count = 0.0, best = -1e300;
          for (std::int64_t row = i * 7 / size.height; row * size.height < (i + 1) * 7; ++row)
            for (std::int64_t column = j * 5 / size.width; column * size.width < (j + 1) * 5;
                 ++column) {
              const double value = values[static_cast<std::size_t>((image * 7 + row) * 5 + column)];
              sum += value;
              count += 1.0;
              best = std::max(best, value);
            }
          means.push_back(sum / count);
          maxima.push_back(best);
        }
    const Shape shape{2, 3, size.height, size.width};
    SCOPED_TRACE(shape.to_string());
    const auto mean = [&](const Tensor& in) { return adaptive_avg_pool2d(in, size); };
    const auto maximum = [&](const Tensor& in) {
      return nn::functional::adaptive_max_pool2d(in, size);
    };
    const FunctionOptions unknown{.input_signature = {{Shape{-1, -1, -1, -1}, float64}}};
    expect_tensor(mean(x), float64, shape, means, 1e-12);
    expect_tensor(maximum(x), float64, shape, maxima);
    expect_tensor(function(mean, unknown)(x), float64, shape, means, 1e-12);
    expect_tensor(function(maximum, unknown)(x), float64, shape, maxima);
    expect_gradients([&](const std::vector<Tensor>& in) { return mean(in[0]); }, {x});
    expect_gradients([&](const std::vector<Tensor>& in) { return maximum(in[0]); }, {x});
  }
  // The first of equal elements in row-major order gets the gradient, as in PyTorch.
  GradientTape tape;
  const Tensor equal =
      constant({0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0}, {.shape = {1, 1, 3, 3}});
  tape.watch(equal);
  const Tensor pooled = nn::functional::adaptive_max_pool2d(equal, 2);
  expect_tensor(tape.gradient(pooled, equal), float32, {1, 1, 3, 3}, {0, 2, 0, 1, 1, 0, 0, 0, 0});
}

TEST(AdaptivePools, RefuseOtherSizes) {
  expect_error<InvalidArgumentError>(
      [] {
        adaptive_avg_pool2d(ones({1, 1, 4, 4}), {0, 1});
      },
      "[adaptive_avg_pool2d] expected an output_size of 1 or more");
  expect_error<ShapeError>(
      [] {
        nn::AdaptiveMaxPool2d(2)(ones({4, 4}));
      },
      "[adaptive_max_pool2d] expected images (batch, channels, height, width)");
  expect_error<ShapeError>([] { nn::AdaptiveMaxPool2d(2)(ones({1, 1, 0, 4})); }, "not empty");
}

TEST(Conv2dModule, PadsWithElementsOfTheImage) {
  const Tensor x = random_tensor({2, 3, 5, 6}, 1), weight = random_tensor({4, 3, 3, 3}, 2);
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    const Tensor padded = nn::functional::pad(x, {2, 2, 1, 1}, mode);
    const Tensor expected = nn::functional::conv2d(padded, weight);
    const Tensor y =
        nn::functional::conv2d(x, weight, {}, {.padding = {1, 2}, .padding_mode = mode});
    expect_tensor(y, float64, {2, 4, 5, 8}, values_of(expected));
  }
  EXPECT_EQ(nn::functional::conv2d(x, weight, {}, {.padding = "same"}).shape(),
            Shape({2, 4, 5, 6}));
  EXPECT_EQ(nn::functional::conv2d(x, weight, {}, {.padding = "valid"}).shape(),
            Shape({2, 4, 3, 4}));
  const Tensor even = random_tensor({1, 3, 2, 4}, 3);  // the odd element goes to the end
  expect_tensor(nn::functional::conv2d(x, even, {}, {.padding = "same"}), float64, {2, 1, 5, 6},
                values_of(nn::functional::conv2d(nn::functional::pad(x, {1, 2, 0, 1}), even)),
                1e-12);
  expect_error<InvalidArgumentError>(
      [&] { nn::functional::conv2d(x, weight, {}, {.stride = 2, .padding = "same"}); },
      "expected strides of 1 with the padding 'same', got 2 x 2");
}

TEST(Pad, TakesElementsOfTheTensor) {
  const Tensor x = constant({0.0, 1.0, 2.0});
  const struct {
    const char* mode;
    std::vector<double> result;
  } cases[] = {{"constant", {9, 9, 0, 1, 2, 9, 9}},
               {"REFLECT", {2, 1, 0, 1, 2, 1, 0}},
               {"symmetric", {1, 0, 0, 1, 2, 2, 1}},
               {"replicate", {0, 0, 0, 1, 2, 2, 2}},
               {"circular", {1, 2, 0, 1, 2, 0, 1}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.mode);
    expect_tensor(nn::functional::pad(x, {2, 2}, c.mode, 9.0), float32, {7}, c.result);
    const auto both = [&](const Tensor& in) {
      return nn::functional::pad(in, {1, 0, 0, 2}, c.mode, 9.0);
    };
    const Tensor y = random_tensor({3, 4}, 1);
    const FunctionOptions unknown{.input_signature = {{Shape{-1, -1}, float64}}};
    expect_tensor(function(both, unknown)(y), float64, {5, 5}, values_of(both(y)));
    expect_gradients([&](const std::vector<Tensor>& in) { return both(in[0]); }, {y});
  }
  expect_tensor(pad(x, {{0, 1}}, "symmetric"), float32, {4}, {0, 1, 2, 2});
  expect_tensor(nn::functional::pad(x, {-2, 3}, "replicate"), float32, {4}, {2, 2, 2, 2});
  expect_tensor(nn::functional::pad(x, {-1, 2}, "circular"), float32, {4}, {1, 2, 1, 2});
  expect_error<InvalidArgumentError>(
      [&] {
        nn::functional::pad(x, {-2, -2});
      },
      "[pad] expected at least 4 elements along axis 0 with its padding");
  // The last axis first; negative numbers remove.
  expect_tensor(nn::functional::pad(ones({2, 2}), {-1, 1, 1, 0}), float32, {3, 2},
                {0, 0, 1, 0, 1, 0});
  expect_error<InvalidArgumentError>(
      [&] {
        nn::functional::pad(x, {3, 0}, "reflect");
      },
      "[pad] expected at least 4 elements along axis 0");
  expect_error<InvalidArgumentError>([&] { nn::functional::pad(x, {1}); }, "pairs of numbers");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::functional::pad(x, {1, 1}, "mirror");
      },
      "expected mode 'constant', 'reflect'");
  expect_error<InvalidArgumentError>([&] { pad(x, {{-1, 1}}, "reflect"); }, "0 or more");
}

TEST(BatchNormModules, NormalizeTheBatchInTrainingAndByRunningMomentsOutside) {
  nn::BatchNorm1d norm(2);
  const Tensor x = constant({{1.0, 10.0}, {3.0, 30.0}});
  const Tensor y = norm(x);
  expect_tensor(y, float32, {2, 2}, {-1, -1, 1, 1}, 1e-4);
  // momentum 0.1 of the batch's mean, and of its variance divided by n - 1.
  expect_tensor(norm->running_mean.value(), float32, {2}, {0.2, 2.0}, 1e-6);
  expect_tensor(norm->running_var.value(), float32, {2}, {0.9 + 0.2, 0.9 + 20.0}, 1e-4);
  norm->eval();
  const Tensor z = norm(x);
  EXPECT_NEAR(values_of(z)[0], 0.8 / std::sqrt(1.1), 1e-4);
  expect_tensor(norm->running_mean.value(), float32, {2}, {0.2, 2.0}, 1e-6);
  const auto names = norm.state_dict();
  EXPECT_TRUE(names.contains("running_var"));
  EXPECT_EQ(norm.parameters().size(), 2u);
  expect_error<ShapeError>([&] { norm(zeros({2, 3})); }, "[batch_norm1d] expected 2 features");
  expect_error<ShapeError>([] { nn::BatchNorm2d(2)(zeros({4, 2})); }, "of 4 axes");
}

TEST(BatchNormModules, NormalizeImagesPerChannel) {
  random::set_seed(4);
  const Tensor x = random::normal({3, 2, 4, 5}) * 3.0 + 1.0;
  const Tensor y = nn::BatchNorm2d(2)(x);
  EXPECT_EQ(y.shape(), x.shape());
  for (int channel = 0; channel < 2; ++channel) {
    const Tensor part = y(Slice{}, channel);
    EXPECT_NEAR(part.mean().item(), 0.0, 1e-5);
    EXPECT_NEAR(part.var(false).item(), 1.0, 1e-3);
  }
  const Tensor sequence = nn::BatchNorm1d(2)(x.flatten(2));
  EXPECT_TRUE(allclose(sequence, y.flatten(2), 1e-5, 1e-5));
}

TEST(Dropout2dModule, DropsChannels) {
  random::set_seed(6);
  nn::Dropout2d drop(0.5);
  const Tensor y = drop(ones({4, 8, 3, 3}));
  for (const double sum : values_of(y.sum({2, 3}))) EXPECT_TRUE(sum == 0.0 || sum == 18.0) << sum;
  drop.eval();
  EXPECT_EQ(drop(ones({1, 2, 2, 2})).sum().item(), 8.0);
}

struct ConvNet : nn::Module {
  ConvNet() : conv(1, 4, 3, {.padding = 1}), norm(4), fc(4 * 4 * 4, 3) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("fc", fc);
  }
  Tensor forward(Tensor x) {
    x = max_pool2d(relu(norm(conv(x))), 2);
    return fc(x.view({x.size(0), -1}));
  }
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::Linear fc;
};

TEST(ConvolutionalNetwork, LearnsAsInPyTorch) {
  random::set_seed(8);
  ConvNet net;
  EXPECT_EQ(net.parameters().size(), 6u);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  const Tensor x = random::normal({12, 1, 8, 8});
  const Tensor labels = argmax(x.flatten(1).slice(1, 0, 3), 1);
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const Tensor loss = nn::functional::cross_entropy(net.forward(x), labels);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item();
  }
  EXPECT_LT(last, first / 2);
}

}  // namespace
}  // namespace tandem::image_modules_test
