// Windows: what they keep, how often samples are sampled, and that they go on from a state.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::window_test {
namespace {

using online::Replace;
using online::Window;
using testing::error_of;

// Samples [number, 2 * number] with the target -number.
void push(const Window& window, std::int64_t first, std::int64_t count) {
  std::vector<double> x, y;
  for (std::int64_t i = first; i < first + count; ++i) {
    x.insert(x.end(), {static_cast<double>(i), 2.0 * static_cast<double>(i)});
    y.push_back(-static_cast<double>(i));
  }
  window.push(reshape(constant(x, {.dtype = float64}), {count, 2}),
              reshape(constant(y, {.dtype = float64}), {count, 1}));
}

// The numbers of a batch, whose parts belong together.
std::vector<std::int64_t> numbers_of(const std::pair<Tensor, Tensor>& batch) {
  const auto x = batch.first.to_vector<double>(), y = batch.second.to_vector<double>();
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(x[2 * i], -y[i]);
    EXPECT_EQ(x[2 * i + 1], -2.0 * y[i]);
    numbers.push_back(static_cast<std::int64_t>(-y[i]));
  }
  return numbers;
}

[[maybe_unused]] std::int64_t resident_mb() {
  std::int64_t size = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * sysconf(_SC_PAGESIZE) / 1'000'000;
}

// The chi-square statistic of counts that are equally likely.
double chi_square(const std::map<std::int64_t, std::int64_t>& counts, std::int64_t kinds) {
  std::int64_t total = 0;
  for (const auto& [number, count] : counts) total += count;
  const double expected = static_cast<double>(total) / static_cast<double>(kinds);
  double sum = expected * static_cast<double>(kinds - static_cast<std::int64_t>(counts.size()));
  for (const auto& [number, count] : counts) {
    const double distance = static_cast<double>(count) - expected;
    sum += distance * distance / expected;
  }
  return sum;
}

TEST(Window, KeepsTheNewestSamples) {
  const Window window({.capacity = 10, .batch_size = 10, .seed = 3});
  EXPECT_FALSE(window.sample().first.defined());
  for (std::int64_t pushed = 0; pushed < 37; pushed += 3) push(window, pushed, 3);
  EXPECT_EQ(window.size(), 10);
  EXPECT_EQ(window.pushed(), 39);
  std::vector<std::int64_t> all = numbers_of(window.sample());
  std::sort(all.begin(), all.end());
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], 29 + i);
}

// A batch has no sample twice, and every sample is equally likely: 99.9 % of 100 counts have a
// chi-square below 149.
TEST(Window, SamplesEachEquallyOften) {
  const Window window({.capacity = 100, .batch_size = 7, .seed = 11});
  push(window, 0, 250);
  std::map<std::int64_t, std::int64_t> counts;
  for (int sample = 0; sample < 20000; ++sample) {
    const std::vector<std::int64_t> batch = numbers_of(window.sample());
    EXPECT_EQ(std::set<std::int64_t>(batch.begin(), batch.end()).size(), 7u);
    for (const std::int64_t number : batch) ++counts[number];
  }
  EXPECT_EQ(counts.begin()->first, 150);
  EXPECT_LT(chi_square(counts, 100), 149.0);
}

// Every sample ever pushed is equally likely to be kept.
TEST(Window, KeepsRandomSamplesOfAll) {
  std::map<std::int64_t, std::int64_t> counts;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Window window(
        {.capacity = 10, .batch_size = 10, .replace = Replace::kRandom, .seed = seed});
    push(window, 0, 60);
    push(window, 60, 40);
    EXPECT_EQ(window.size(), 10);
    for (const std::int64_t number : numbers_of(window.sample())) ++counts[number];
  }
  EXPECT_LT(chi_square(counts, 100), 149.0);
}

TEST(Window, NeverSamplesTheHoldout) {
  const Window window({.capacity = 1000, .batch_size = 20, .holdout = 0.25, .seed = 5});
  for (std::int64_t pushed = 0; pushed < 4000; pushed += 100) {
    push(window, pushed, 100);
    const std::vector<std::int64_t> held = numbers_of(window.holdout());
    const std::set<std::int64_t> never(held.begin(), held.end());
    for (int sample = 0; sample < 10; ++sample)
      for (const std::int64_t number : numbers_of(window.sample()))
        EXPECT_FALSE(never.contains(number));
  }
  EXPECT_EQ(window.size(), 750);
  EXPECT_EQ(window.holdout_size(), 250);
}

TEST(Window, GoesOnFromItsState) {
  for (const Replace replace : {Replace::kOldest, Replace::kRandom}) {
    const online::WindowOptions options{
        .capacity = 50, .batch_size = 8, .replace = replace, .holdout = 0.1, .seed = 2};
    const Window window(options), other(options);
    push(window, 0, 133);
    window.sample();
    other.restore(window.state());
    for (std::int64_t i = 0; i < 20; ++i) {
      push(window, 200 + 3 * i, 3);
      push(other, 200 + 3 * i, 3);
      EXPECT_EQ(numbers_of(window.sample()), numbers_of(other.sample()));
      EXPECT_EQ(numbers_of(window.holdout()), numbers_of(other.holdout()));
    }
    EXPECT_EQ(window.pushed(), other.pushed());
    // An empty one, too.
    const Window empty(options);
    other.restore(empty.state());
    EXPECT_EQ(other.size(), 0);
  }
}

TEST(Window, RefusesOtherStates) {
  const Window window({.capacity = 50, .batch_size = 8}), other({.capacity = 51, .batch_size = 8});
  push(window, 0, 60);
  push(other, 0, 3);
  EXPECT_NE(error_of<InvalidArgumentError>([&] {
              other.restore(window.state());
            }).find("is of a window of capacity 50"),
            std::string::npos);
  auto state = window.state();
  state["x"] = slice(state["x"], {0, 0}, {49, 2});
  EXPECT_EQ(error_of<DataLossError>([&] { window.restore(state); }),
            "[Window] the samples of the state do not fit together");
  state = window.state();
  state.erase("numbers");
  EXPECT_EQ(error_of<DataLossError>([&] { window.restore(state); }),
            "[Window] expected the state of a window, got other tensors");
  EXPECT_EQ(window.size(), 50);
}

TEST(Window, RefusesSamplesThatDiffer) {
  const Window window({.capacity = 50, .batch_size = 8});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              window.push(zeros({3, 2}), zeros({2, 1}));
            }),
            "[push] expected equally many samples, got x (3, 2) and y (2, 1)");
  window.push(zeros({3, 2}), zeros({3, 1}));
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              window.push(zeros({3, 3}), zeros({3, 1}));
            }),
            "[push] x: expected samples of float32 (2,), as those before, got float32 (3,)");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              window.push(zeros({3, 2}), zeros({3, 1}, {.dtype = float64}));
            }),
            "[push] y: expected samples of float32 (1,), as those before, got float64 (1,)");
  window.push(zeros({0, 2}), zeros({0, 1}));
  EXPECT_EQ(window.size(), 3);
}

TEST(Window, RefusesOptionsOutOfRange) {
  const auto error = [](const online::WindowOptions& options) {
    return error_of<InvalidArgumentError>([&] { Window window(options); });
  };
  EXPECT_EQ(error({.batch_size = 0}), "[Window] expected a batch size of at least 1, got 0");
  EXPECT_EQ(error({.capacity = 31}),
            "[Window] expected a capacity from the batch size to 2^48, got 31");
  EXPECT_EQ(error({.holdout = 0.6}), "[Window] expected a holdout of 0 to 0.5, got 0.6");
  EXPECT_EQ(error({.min_samples = -1}), "[Window] expected min_samples of at least 0, got -1");
  EXPECT_EQ(error({.capacity = 32, .holdout = 0.1}),
            "[Window] expected a capacity of a batch besides the holdout, got 32");
}

// Ten million samples pass through bounded memory, and as many are sampled: each equally often.
TEST(WindowSlow, TakesTenMillionPushesAndSamples) {
  const Window window(
      {.capacity = 1000, .batch_size = 100, .replace = Replace::kRandom, .seed = 1});
  push(window, 0, 100'000);
  [[maybe_unused]] const std::int64_t before = resident_mb();
  for (std::int64_t pushed = 100'000; pushed < 10'000'000; pushed += 100'000)
    push(window, pushed, 100'000);
  std::map<std::int64_t, std::int64_t> counts;
  for (int sample = 0; sample < 100'000; ++sample)
    for (const std::int64_t number : numbers_of(window.sample())) ++counts[number];
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep freed memory
  EXPECT_LT(resident_mb(), before + 64);  // all samples would take 240 MB
#endif
  EXPECT_EQ(window.size(), 1000);
  EXPECT_LT(chi_square(counts, 1000), 1143.0);  // 99.9 % of 1000 counts
  std::map<std::int64_t, std::int64_t> kept;
  for (const double number : window.state().at("y").to_vector<double>())
    ++kept[static_cast<std::int64_t>(-number) / 1'000'000];
  EXPECT_LT(chi_square(kept, 10), 27.9);  // 99.9 % of 10 counts
}

}  // namespace
}  // namespace tandem::window_test
