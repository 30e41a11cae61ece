#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/random/words.h"
#include "runtime/generator.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::random_test {
namespace {

using testing::expect_error;
using testing::values_of;

struct Moments {
  double mean = 0, deviation = 0, skew = 0, kurtosis = 0;
};
Moments moments_of(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (double value : x) m.mean += value / n;
  double second = 0, third = 0, fourth = 0;
  for (double value : x) {
    const double d = value - m.mean;
    second += d * d / n, third += d * d * d / n, fourth += d * d * d * d / n;
  }
  m.deviation = std::sqrt(second);
  m.skew = third / (second * m.deviation);
  m.kurtosis = fourth / (second * second);
  return m;
}

TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  // The test vectors of the Random123 distribution.
  const std::array<std::uint32_t, 4> zeros = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
  EXPECT_EQ(philox({.seed = 0, .number = 0, .stream = 0}, 0), zeros);
  const std::array<std::uint32_t, 4> ones = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
  EXPECT_EQ(philox({.seed = ~0ull, .number = ~0ull, .stream = 0}, ~0ull), ones);
}

TEST(Philox, BlocksHoldTheWordsOfTheirCounters) {
  // Across the carry into the upper half of the counter, too.
  for (const std::int64_t block :
       {std::int64_t{0}, std::int64_t{7}, (std::int64_t{1} << 28) - 1, std::int64_t{1} << 28}) {
    const RandomKey key = {.seed = 0x123456789abcdefull, .number = 0xfedcba987ull, .stream = 3};
    Words words;
    fill_words(key, block, words);
    for (int column = 0; column < kColumns; ++column) {
      const auto expected = philox(key, static_cast<std::uint64_t>(block * kColumns + column));
      for (int row = 0; row < 4; ++row)
        EXPECT_EQ(words[row][column], expected[static_cast<std::size_t>(row)])
            << block << ' ' << row << ' ' << column;
    }
  }
}

TEST(Random, TheSameForAnyNumberOfThreads) {
  testing::expect_same_bits_with_any_team([] {
    random::set_seed(42);
    std::vector<double> numbers;
    const auto add = [&](const Tensor& sampled) {
      for (const double value : values_of(sampled)) numbers.push_back(value);
    };
    for (DType dtype : testing::kFloatingTypes) {
      add(random::normal(Shape({50001}), 0, 1, {.dtype = dtype}));
      add(random::truncated_normal(Shape({50001}), 0, 1, {.dtype = dtype}));
      add(random::uniform(Shape({50001}), -1, 1, {.dtype = dtype}));
    }
    add(random::uniform_int(Shape({50001}), 0, 1000));
    add(random::bernoulli(Shape({50001}), 0.3));
    add(random::permutation(50001));
    return numbers;
  });
}

TEST(Random, ElementsDependOnTheirPositionOnly) {
  random::set_seed(3);
  const auto many = random::normal(Shape({1000})).to_vector<float>();
  random::set_seed(3);
  const auto few = random::normal(Shape({10, 7})).to_vector<float>();
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

// Samples of every distribution in every dtype: those that are bitwise equal on all devices, and
// those that may differ by rounding.
struct Samples {
  std::vector<std::vector<double>> exact, close;
};
Samples sample_on(const char* device) {
  random::set_seed(21);
  const DeviceScope scope(device);
  Samples samples;
  for (const DType dtype : testing::kFloatingTypes) {
    samples.close.push_back(values_of(random::uniform({1'003}, -3.0, 2.0, {.dtype = dtype})));
    samples.exact.push_back(values_of(nn::dropout(ones({1'003}, {.dtype = dtype}), 0.3)));
    samples.close.push_back(values_of(random::normal({1'003}, 1.0, 2.0, {.dtype = dtype})));
    samples.close.push_back(
        values_of(random::truncated_normal({1'003}, 1.0, 2.0, {.dtype = dtype})));
  }
  for (const DType dtype : {int32, int64, uint8})
    samples.exact.push_back(values_of(random::uniform_int({1'003}, 3, 200, {.dtype = dtype})));
  for (const DType dtype : {bool_, bfloat16, int32})
    samples.exact.push_back(values_of(random::bernoulli({1'003}, 0.4, {.dtype = dtype})));
  return samples;
}

TEST(Random, EveryDeviceGeneratesTheSameNumbers) {
  const Samples on_cpu = sample_on("CPU:0"), on_default = sample_on("");
  ASSERT_EQ(on_cpu.exact.size(), on_default.exact.size());
  for (std::size_t i = 0; i < on_cpu.exact.size(); ++i) {
    const auto& other = on_default.exact[i];
    const auto at = std::mismatch(on_cpu.exact[i].begin(), on_cpu.exact[i].end(), other.begin());
    EXPECT_TRUE(at.second == other.end())
        << "sample " << i << ", element " << at.second - other.begin() << ": " << *at.first << ", "
        << *at.second;
  }
  ASSERT_EQ(on_cpu.close.size(), on_default.close.size());
  for (std::size_t i = 0; i < on_cpu.close.size(); ++i) {
    const double unit = testing::epsilon_of(testing::kFloatingTypes[i / 3]);
    for (std::size_t j = 0; j < on_cpu.close[i].size(); ++j) {
      const double expected = on_cpu.close[i][j];
      EXPECT_NEAR(on_default.close[i][j], expected, 16 * unit * std::fmax(1.0, std::fabs(expected)))
          << i << " " << j;
    }
  }
}

TEST(Random, CallsDifferAndContinueFromTheState) {
  random::set_seed(5);
  const auto first = random::uniform(Shape({100})).to_vector<float>();
  const random::GeneratorState state = random::get_state();
  EXPECT_EQ(state, (random::GeneratorState{.seed = 5, .offset = 1}));
  const auto second = random::uniform(Shape({100})).to_vector<float>();
  EXPECT_NE(first, second);
  random::set_state(state);
  EXPECT_EQ(random::uniform(Shape({100})).to_vector<float>(), second);
  random::set_seed(6);
  EXPECT_NE(random::uniform(Shape({100})).to_vector<float>(), first);
}

TEST(Random, AThreadsGeneratorDoesNotAdvanceTheProcesssGenerator) {
  random::set_seed(7);
  Generator own({.seed = 7, .offset = 0});
  std::vector<float> numbers;
  {
    const Scoped scope(context.generator, &own);
    numbers = random::uniform(Shape({10})).to_vector<float>();
  }
  EXPECT_EQ(own.state().offset, 1u);
  EXPECT_EQ(random::get_state().offset, 0u);
  EXPECT_EQ(random::uniform(Shape({10})).to_vector<float>(), numbers);
}

// Bounds are about five standard errors of 200,000 samples.
TEST(Random, NormalHasItsMoments) {
  random::set_seed(11);
  for (DType dtype : testing::kFloatingTypes) {
    SCOPED_TRACE(::testing::Message() << dtype);
    const Moments m =
        moments_of(values_of(random::normal(Shape({200000}), 1.0, 2.0, {.dtype = dtype})));
    EXPECT_NEAR(m.mean, 1.0, 0.025);
    EXPECT_NEAR(m.deviation, 2.0, 0.02);
    EXPECT_NEAR(m.skew, 0.0, 0.03);
    EXPECT_NEAR(m.kurtosis, 3.0, 0.06);
  }
}

TEST(Random, NormalNumbersAreNotCorrelated) {
  random::set_seed(12);
  const auto x = values_of(random::normal(Shape({200000})));
  for (std::size_t lag : {1u, 2u, 16u, 32u, 64u}) {
    double product = 0;
    for (std::size_t i = 0; i + lag < x.size(); ++i) product += x[i] * x[i + lag];
    EXPECT_NEAR(product / static_cast<double>(x.size()), 0.0, 0.012) << "lag " << lag;
  }
}

// The distribution function at several points against erf.
TEST(Random, NormalFollowsItsDistribution) {
  random::set_seed(13);
  for (DType dtype : {float32, float64}) {
    auto x = values_of(random::normal(Shape({200000}), 0, 1, {.dtype = dtype}));
    std::sort(x.begin(), x.end());
    for (double at : {-3.0, -2.0, -1.0, -0.5, 0.0, 0.7, 1.5, 2.5, 3.5}) {
      const auto below =
          static_cast<double>(std::lower_bound(x.begin(), x.end(), at) - x.begin()) / 200000.0;
      EXPECT_NEAR(below, 0.5 * (1.0 + std::erf(at / std::sqrt(2.0))), 0.006) << at;
    }
  }
}

TEST(Random, TruncatedNormalStaysWithinTwoDeviations) {
  random::set_seed(14);
  for (DType dtype : testing::kFloatingTypes) {
    auto x = values_of(random::truncated_normal(Shape({200000}), 0.0, 0.5, {.dtype = dtype}));
    EXPECT_LE(*std::max_element(x.begin(), x.end()), 1.0);
    EXPECT_GE(*std::min_element(x.begin(), x.end()), -1.0);
    const Moments m = moments_of(x);
    EXPECT_NEAR(m.mean, 0.0, 0.006);
    EXPECT_NEAR(m.deviation, 0.5 * 0.87962566103423978, 0.004);
    std::sort(x.begin(), x.end());
    for (double z : {-1.5, -0.5, 0.25, 1.0, 1.9}) {
      const auto below =
          static_cast<double>(std::lower_bound(x.begin(), x.end(), 0.5 * z) - x.begin()) / 200000.0;
      const auto cdf = [](double v) { return 0.5 * (1.0 + std::erf(v / std::sqrt(2.0))); };
      EXPECT_NEAR(below, (cdf(z) - cdf(-2)) / (cdf(2) - cdf(-2)), 0.008) << z;
    }
  }
}

TEST(Random, UniformKeepsItsBounds) {
  random::set_seed(15);
  for (DType dtype : testing::kFloatingTypes) {
    SCOPED_TRACE(::testing::Message() << dtype);
    for (const auto& [low, high] :
         {std::pair{-1.0, 3.0}, std::pair{0.0, 1.0}, std::pair{-2.0, 0.0}}) {
      const auto x = values_of(random::uniform(Shape({200000}), low, high, {.dtype = dtype}));
      EXPECT_GE(*std::min_element(x.begin(), x.end()), low);
      EXPECT_LT(*std::max_element(x.begin(), x.end()), high);
      const Moments m = moments_of(x);
      EXPECT_NEAR(m.mean, (low + high) / 2, 0.01 * (high - low));
      EXPECT_NEAR(m.deviation, (high - low) / std::sqrt(12.0), 0.005 * (high - low));
    }
  }
  EXPECT_EQ(random::uniform(Shape({3}), 2.0, 2.0).to_vector<float>(), std::vector<float>(3, 2.0f));
}

TEST(Random, UniformIntCoversItsRangeEvenly) {
  random::set_seed(16);
  for (DType dtype : {int32, int64, uint8}) {
    std::vector<int> counts(10);
    for (double value : values_of(random::uniform_int(Shape({100000}), 5, 15, {.dtype = dtype})))
      ++counts.at(static_cast<std::size_t>(value) - 5);
    for (int count : counts) EXPECT_NEAR(count, 10000, 500);
  }
  const auto wide = random::uniform_int(Shape({1000}), std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max(), {.dtype = int64})
                        .to_vector<std::int64_t>();
  const auto negative =
      std::count_if(wide.begin(), wide.end(), [](std::int64_t v) { return v < 0; });
  EXPECT_NEAR(static_cast<double>(negative), 500.0, 80.0);
}

TEST(Random, BernoulliGivesOnesWithItsProbability) {
  random::set_seed(17);
  for (DType dtype : {float32, bfloat16, int32, bool_})
    EXPECT_NEAR(
        moments_of(values_of(random::bernoulli(Shape({100000}), 0.3, {.dtype = dtype}))).mean, 0.3,
        0.008);
  EXPECT_EQ(values_of(random::bernoulli(Shape({10000}), 0.0)), std::vector<double>(10000, 0.0));
  EXPECT_EQ(values_of(random::bernoulli(Shape({10000}), 1.0)), std::vector<double>(10000, 1.0));
}

TEST(Random, PermutationsAndShuffles) {
  random::set_seed(18);
  auto order = random::permutation(1000).to_vector<std::int64_t>();
  std::vector<std::int64_t> sorted(1000);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(order, sorted);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, sorted);
  EXPECT_EQ(random::permutation(0).size(), 0);

  // Each element is equally likely at each place.
  std::array<std::array<int, 4>, 4> seen{};
  for (int n = 0; n < 4000; ++n) {
    const auto four = random::permutation(4).to_vector<std::int64_t>();
    for (std::size_t place = 0; place < 4; ++place)
      ++seen[place][static_cast<std::size_t>(four[place])];
  }
  for (const auto& place : seen)
    for (int count : place) EXPECT_NEAR(count, 1000, 140);

  const Tensor rows = constant({{0, 0}, {1, 10}, {2, 20}, {3, 30}});
  const auto mixed = random::shuffle(rows).to_vector<int>();
  std::vector<int> firsts;
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(mixed[2 * row + 1], 10 * mixed[2 * row]);
    firsts.push_back(mixed[2 * row]);
  }
  std::sort(firsts.begin(), firsts.end());
  EXPECT_EQ(firsts, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Random, InvalidArgumentsAreRefused) {
  expect_error<InvalidArgumentError>(
      [] { random::normal(Shape({2}), 0, -1); },
      "[RandomStandardNormal] expected a stddev of at least 0, got -1");
  expect_error<InvalidArgumentError>([] { random::normal(Shape({2}), 0, 1, {.dtype = int32}); },
                                     "[RandomStandardNormal] expected a floating dtype, got int32");
  expect_error<InvalidArgumentError>([] { random::uniform(Shape({2}), 1, 0); },
                                     "[RandomUniform] expected finite low <= high, got 1 and 0");
  expect_error<InvalidArgumentError>([] { random::uniform_int(Shape({2}), 3, 3); },
                                     "[RandomUniformInt] expected low < high, got 3 and 3");
  expect_error<InvalidArgumentError>(
      [] { random::uniform_int(Shape({2}), 0, 300, {.dtype = uint8}); }, "uint8 holds");
  expect_error<InvalidArgumentError>([] { random::bernoulli(Shape({2}), 1.5); },
                                     "[RandomBernoulli] expected a probability in [0, 1], got 1.5");
  expect_error<InvalidArgumentError>([] { random::normal(Shape({-2})); },
                                     "expected a shape of sizes of at least 0");
  expect_error<InvalidArgumentError>([] { random::shuffle(constant(1)); },
                                     "[shuffle] expected at least one axis");
}

TEST(Random, OptionsOfTensorFlow) {
  random::set_seed(7);
  const Tensor plain = random::normal({64}, 3.0, 2.0);
  random::set_seed(7);
  EXPECT_EQ(values_of(random::normal({64}, {.mean = 3.0, .stddev = 2.0})), values_of(plain));
  random::set_seed(7);
  const Tensor classes = random::uniform({100}, {.minval = 0, .maxval = 3, .dtype = int64});
  random::set_seed(7);
  EXPECT_EQ(values_of(random::uniform_int({100}, 0, 3, {.dtype = int64})), values_of(classes));
  expect_error<InvalidArgumentError>(
      [] { static_cast<void>(random::uniform({2}, {.dtype = int32})); },
      "[RandomUniformInt] expected maxval for dtype int32, got none");
}

TEST(Random, SeedsOfOperationsGiveOtherNumbers) {
  const auto numbers = [](std::optional<std::uint64_t> seed) {
    random::set_seed(7);
    return values_of(random::normal({16}, {.seed = seed}));
  };
  EXPECT_EQ(numbers(3), numbers(3));
  EXPECT_NE(numbers(3), numbers(4));
  EXPECT_NE(numbers(3), numbers(std::nullopt));
  EXPECT_NE(numbers(0), numbers(std::nullopt));
  random::set_seed(7);
  const auto first = values_of(random::normal({16}, {.seed = 3}));
  EXPECT_NE(values_of(random::normal({16}, {.seed = 3})), first);  // the next call
}

TEST(Generator, HasTheNumbersOfItsSeedAndLeavesThoseOfTheProcess) {
  random::set_seed(3);
  const auto expected = values_of(random::normal({4})), next = values_of(random::uniform({2}));
  random::set_seed(5);
  const random::Generator own(3), same = own, again = random::Generator::from_seed(3);
  EXPECT_EQ(values_of(own.normal({4})), expected);
  EXPECT_EQ(values_of(same.uniform({2})), next);
  EXPECT_EQ(values_of(again.normal({4}, {.mean = 0.0})), expected);
  EXPECT_EQ(random::get_state().offset, 0u);
  again.set_state({.seed = 3, .offset = 0});
  EXPECT_EQ(values_of(again.normal({4})), expected);
  EXPECT_EQ(again.get_state().offset, 1u);
}

TEST(Generator, ThrowsInATrace) {
  const random::Generator own(3);
  const auto traced = function([&](const Tensor& x) { return x + own.normal({1}); });
  expect_error<UnimplementedError>([&] { traced(ones({1})); }, "[Generator] expected a call");
}

}  // namespace
}  // namespace tandem::random_test
