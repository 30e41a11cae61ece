// Adasum: against its formula, between process sets, and in the optimizer.
#include "hvd/adasum.h"

#include <gtest/gtest.h>

#include "hvd/expect_close.h"
#include "support/expects.h"
#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/tandem.h"

namespace tandem::adasum_test {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::expect_hvd;
using testing::values_of;

std::vector<double> adasum_reference(const std::vector<double>& a, const std::vector<double>& b) {
  double dot = 0.0, aa = 0.0, bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  std::vector<double> sum;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum.push_back((1.0 - dot / (2.0 * aa)) * a[i] + (1.0 - dot / (2.0 * bb)) * b[i]);
  return sum;
}

TEST(HvdAdasum, CombinesByPairsThenPairsOfPairs) {
  for (int ranks : {2, 4})
    for (const char* threshold : {"134217728", "0"})
      expect_hvd(
          ranks,
          [&](int rank) {
            for (DType dtype : {float64, float32, float16})
              for (std::int64_t count : {1, 1000}) {
                const auto of = [&](int r, int tensor) {
                  return values_of(testing::random_tensor(
                      {count}, static_cast<std::uint32_t>(10 * r + tensor), -1.0, 1.0, dtype));
                };
                std::vector<Tensor> mine;
                for (int tensor = 0; tensor < 3; ++tensor)
                  mine.push_back(constant(of(rank, tensor), {.dtype = dtype}));
                const auto results = hvd::grouped_allreduce(mine, {.op = hvd::kAdasum});
                for (int tensor = 0; tensor < 3; ++tensor) {
                  std::vector<double> expected = adasum_reference(of(0, tensor), of(1, tensor));
                  if (ranks == 4)
                    expected =
                        adasum_reference(expected, adasum_reference(of(2, tensor), of(3, tensor)));
                  expect_close(values_of(results[static_cast<std::size_t>(tensor)]), expected,
                               8.0 * testing::epsilon_of(dtype) + 1e-13);
                }
              }
          },
          {{"HOROVOD_FUSION_THRESHOLD", threshold}});
}

TEST(HvdAdasum, EqualVectorsGiveTheirMeanAndOrthogonalOnesTheirSum) {
  std::vector<float> a = {3.0f, 4.0f}, b = {3.0f, 4.0f}, c = {-4.0f, 3.0f}, zero = {0.0f, 0.0f},
                     out(2);
  const auto pair = [&](std::vector<float>& x, std::vector<float>& y) {
    hvd::adasum_pair({x.data(), 2, float32}, {y.data(), 2, float32}, out.data());
    return out;
  };
  EXPECT_EQ(pair(a, b), (std::vector<float>{3.0f, 4.0f}));
  EXPECT_EQ(pair(a, c), (std::vector<float>{-1.0f, 7.0f}));
  EXPECT_EQ(pair(a, zero), a);
}

// The background thread runs the cycles of several sets, and two ranks may be at different sets.
TEST(HvdAdasum, NeverDelaysOtherProcessSets) {
  expect_hvd(2, [](int rank) {
    const hvd::ProcessSet sets[] = {hvd::add_process_set({0, 1}), hvd::add_process_set({1, 0})};
    for (int step = 0; step < 300; ++step) {
      std::vector<hvd::Handle> handles;
      for (int i = 0; i < 2; ++i)
        handles.push_back(hvd::allreduce_async(
            full({64}, 2.0),
            {.name = "x", .op = hvd::kAdasum, .process_set = sets[(i + rank) % 2]}));
      for (const hvd::Handle& handle : handles) {
        ASSERT_TRUE(testing::eventually([&] { return hvd::poll(handle); })) << step;
        EXPECT_EQ(values_of(hvd::synchronize(handle)), std::vector<double>(64, 2.0));
      }
    }
  });
}

TEST(HvdAdasum, RequiresAPowerOfTwoOfRanks) {
  expect_hvd(3, [](int) {
    expect_error<InvalidArgumentError>(
        [] { hvd::allreduce(constant({1.0f}), {.op = hvd::kAdasum}); },
        "Running Adasum with non-power of 2 ranks is not supported yet.");
    expect_error<InvalidArgumentError>(
        [] { hvd::DistributedOptimizer(optimizers::SGD(), {.op = hvd::kAdasum}); },
        "Running Adasum with non-power of 2 ranks is not supported yet.");
  });
}

TEST(HvdAdasum, TheOptimizerReducesTheChangesOfEachRank) {
  expect_hvd(2, [](int rank) {
    const auto gradient = [](int r) {
      return constant({1.0f + static_cast<float>(r), -2.0f, 0.5f * static_cast<float>(r)});
    };
    const Variable weights(constant({1.0f, 2.0f, 3.0f}));
    auto optimizer =
        hvd::DistributedOptimizer(optimizers::SGD({.learning_rate = 0.25}), {.op = hvd::kAdasum});
    optimizer.apply_gradients({gradient(rank)}, {weights});
    std::vector<double> moved[2];
    for (int r = 0; r < 2; ++r)
      for (double value : values_of(gradient(r))) moved[r].push_back(-0.25 * value);
    std::vector<double> expected = {1.0, 2.0, 3.0};
    const std::vector<double> together = adasum_reference(moved[0], moved[1]);
    for (std::size_t i = 0; i < 3; ++i) expected[i] += together[i];
    expect_close(values_of(weights.value()), expected, 1e-6);
  });
}

}  // namespace
}  // namespace tandem::adasum_test
