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
  expect_error<UnimplementedError>([&] { nn::AdaptiveAvgPool2d(3)(x); }, "divide the image evenly");
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
