#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/datasets.h"
#include "tandem/errors.h"

namespace tandem::synthetic_digits_test {
namespace {

TEST(SyntheticDigits, HaveMnistsShape) {
  const auto [train, test] = datasets::synthetic_digits({.train = 300, .test = 50, .seed = 3});
  EXPECT_EQ(train.size(), 300);
  EXPECT_EQ(train.images.shape(), Shape({300, 28, 28, 1}));
  EXPECT_EQ(train.images.dtype(), uint8);
  EXPECT_EQ(train.labels.dtype(), int64);
  EXPECT_EQ(test.size(), 50);
  std::vector<int> counts(10);
  for (const std::int64_t label : train.labels.to_vector<std::int64_t>())
    ++counts.at(static_cast<std::size_t>(label));
  for (const int count : counts) EXPECT_GT(count, 10);
  // Bright strokes on a dark background, nowhere at the border.
  const auto pixels = train.images.to_vector<std::uint8_t>();
  for (std::size_t i = 0; i < 300; ++i) {
    int bright = 0, border = 0;
    for (std::size_t p = 0; p < 784; ++p) {
      const int value = pixels[i * 784 + p];
      bright += value > 100;
      if (p < 28 || p >= 756 || p % 28 == 0 || p % 28 == 27) border += value > 100;
    }
    EXPECT_GT(bright, 15) << i;
    EXPECT_LT(bright, 400) << i;
    EXPECT_EQ(border, 0) << i;
  }
}

TEST(SyntheticDigits, DependOnSeedAndPositionOnly) {
  const auto set = datasets::synthetic_digits({.train = 200, .test = 20, .seed = 5});
  const auto longer = datasets::synthetic_digits({.train = 500, .test = 20, .seed = 5});
  EXPECT_EQ(slice_rows(longer.train.images, 0, 200).to_vector<std::uint8_t>(),
            set.train.images.to_vector<std::uint8_t>());
  EXPECT_EQ(longer.test.images.to_vector<std::uint8_t>(),
            set.test.images.to_vector<std::uint8_t>());
  {
    const ThreadBudget one(1);
    const auto alone = datasets::synthetic_digits({.train = 200, .test = 20, .seed = 5});
    EXPECT_EQ(alone.train.images.to_vector<std::uint8_t>(),
              set.train.images.to_vector<std::uint8_t>());
    EXPECT_EQ(alone.train.labels.to_vector<std::int64_t>(),
              set.train.labels.to_vector<std::int64_t>());
  }
  const auto other = datasets::synthetic_digits({.train = 200, .test = 20, .seed = 6});
  EXPECT_NE(other.train.images.to_vector<std::uint8_t>(),
            set.train.images.to_vector<std::uint8_t>());
  EXPECT_NE(slice_rows(set.train.images, 0, 20).to_vector<std::uint8_t>(),
            set.test.images.to_vector<std::uint8_t>());
}

TEST(SyntheticDigits, RejectNegativeCounts) {
  testing::expect_error<InvalidArgumentError>(
      [] { datasets::synthetic_digits({.train = -1}); },
      "[synthetic_digits] expected counts of at least 0, got -1 and 2000");
  EXPECT_EQ(datasets::synthetic_digits({.train = 0, .test = 1}).train.size(), 0);
}

// The accuracy of softmax regression, a linear classifier.
double linear_accuracy(const datasets::TrainTest& digits, int epochs) {
  constexpr std::size_t kPixels = 784, kClasses = 10;
  std::vector<double> weights((kPixels + 1) * kClasses);
  const auto scores = [&](const std::uint8_t* image) {
    std::vector<double> sums(weights.end() - kClasses, weights.end());
    for (std::size_t p = 0; p < kPixels; ++p)
      for (std::size_t c = 0; image[p] > 0 && c < kClasses; ++c)
        sums[c] += image[p] / 255.0 * weights[p * kClasses + c];
    return sums;
  };
  const auto images = digits.train.images.to_vector<std::uint8_t>();
  const auto labels = digits.train.labels.to_vector<std::int64_t>();
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (std::size_t i = 0; i < labels.size(); ++i) {
      auto sums = scores(&images[i * kPixels]);
      const double top = *std::max_element(sums.begin(), sums.end());
      double total = 0.0;
      for (double& sum : sums) total += sum = std::exp(sum - top);
      for (std::size_t c = 0; c < kClasses; ++c) {
        const double step = 0.02 * (sums[c] / total - (labels[i] == static_cast<std::int64_t>(c)));
        weights[kPixels * kClasses + c] -= step;
        for (std::size_t p = 0; p < kPixels; ++p)
          weights[p * kClasses + c] -= step * images[i * kPixels + p] / 255.0;
      }
    }
  const auto test_images = digits.test.images.to_vector<std::uint8_t>();
  const auto test_labels = digits.test.labels.to_vector<std::int64_t>();
  int right = 0;
  for (std::size_t i = 0; i < test_labels.size(); ++i) {
    const auto sums = scores(&test_images[i * kPixels]);
    right += std::max_element(sums.begin(), sums.end()) - sums.begin() == test_labels[i];
  }
  return right / static_cast<double>(test_labels.size());
}

TEST(SyntheticDigitsSlow, AreHardForALinearClassifier) {
  const double accuracy =
      linear_accuracy(datasets::synthetic_digits({.train = 10'000, .test = 2'000, .seed = 1}), 4);
  EXPECT_GT(accuracy, 0.75);
  EXPECT_LT(accuracy, 0.93);
}

}  // namespace
}  // namespace tandem::synthetic_digits_test
