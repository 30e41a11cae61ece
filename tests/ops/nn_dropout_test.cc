#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/nn_reference.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "support/thread_counts.h"
#include "sync/gradient_sync.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::nn_dropout_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

// A replica that holds `examples` of the global batch from `offset` on.
class FakeReplica final : public ReplicaContext {
 public:
  FakeReplica(int id, int count, std::int64_t offset, std::int64_t examples) {
    replica_id_ = id;
    num_replicas_ = count;
    example_offset_ = offset;
    global_examples_ = examples;
  }
  std::vector<Tensor> all_reduce(std::span<const Tensor>, ReduceOp) override { return {}; }
  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>&, ReduceOp) override {
    return nullptr;
  }
  void run_for_idle_replicas(const std::function<void()>&) override {}
  Tensor broadcast(const Tensor& tensor) override { return tensor; }
  void add_to_key(std::string&) const override {}
};

TEST(Dropout, KeepsTheExpectedFractionAndScalesIt) {
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    const std::int64_t count = 100000;
    double kept = 0;
    for (double value : values_of(nn::dropout(ones({count}), rate))) {
      if (value == 0.0) continue;
      EXPECT_NEAR(value, 1.0 / (1.0 - rate), 1e-5);
      kept += 1;
    }
    // Five standard deviations of the binomial distribution.
    EXPECT_NEAR(kept / count, 1.0 - rate, 5 * std::sqrt(rate * (1 - rate) / count) + 1e-12);
  }
}

TEST(Dropout, RepeatsWithTheSeedAndChangesWithTheOffset) {
  random::set_seed(7);
  const std::vector<float> first = nn::dropout(ones({1000}), 0.5).to_vector<float>();
  const std::vector<float> second = nn::dropout(ones({1000}), 0.5).to_vector<float>();
  random::set_seed(7);
  EXPECT_EQ(nn::dropout(ones({1000}), 0.5).to_vector<float>(), first);
  EXPECT_NE(second, first);
}

TEST(Dropout, DropsTheSameOnAnyNumberOfThreadsAndInAnyDtype) {
  testing::expect_same_bits_with_any_team([] {
    random::set_seed(8);
    const std::vector<double> expected = values_of(nn::dropout(ones({70001}), 0.5));
    for (const DType dtype : testing::kFloatingTypes) {
      random::set_seed(8);
      if (values_of(nn::dropout(ones({70001}, {.dtype = dtype}), 0.5)) != expected)
        throw InternalError(std::string(name_of(dtype)) + " differs");
    }
    return expected;
  });
}

TEST(Dropout, TheGradientHasTheSameMask) {
  for (const DType dtype : testing::kFloatingTypes) {
    GradientTape tape;
    const Tensor x = ones({5, 333}, {.dtype = dtype});
    tape.watch(x);
    const Tensor y = nn::dropout(x, 0.25);
    EXPECT_EQ(values_of(tape.gradient(y, x)), values_of(y));
  }
}

TEST(Dropout, AZeroThatIsKeptHasAGradient) {
  const Tensor x = zeros({1000});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = nn::dropout(x, 0.25);
  double kept = 0;
  const Tensor gradient = tape.gradient(y, x);
  for (const double value : values_of(gradient)) kept += value * 0.75;
  EXPECT_NEAR(kept, 750, 5 * std::sqrt(1000 * 0.25 * 0.75));
  // The gradient is linear in that of y, with the same mask.
  const Tensor slope = random_tensor({1000}, 2, -1, 1, float32);
  tape.watch(slope);
  const Tensor again = tape.gradient(y, x, {.output_gradient = slope});
  EXPECT_EQ(values_of(tape.gradient(again, slope)), values_of(gradient));
}

TEST(Dropout, ReplicasDropTheSameElementsAsOneDevice) {
  // 7 examples of 45 elements, split unevenly: no boundary falls on a block of random words.
  const Tensor x = random_tensor({7, 9, 5}, 1, -1, 1, float32);
  random::set_seed(9);
  const std::vector<double> whole = values_of(nn::dropout(x, 0.4));
  std::vector<double> parts;
  std::int64_t offset = 0;
  int id = 0;
  for (const std::int64_t examples : {3, 3, 1}) {
    FakeReplica replica(id++, 3, offset, 7);
    const Scoped scope(context.replica, &replica);
    Generator generator({.seed = 9, .offset = 0});
    const Scoped generator_scope(context.generator, &generator);
    for (double value : values_of(nn::dropout(slice_rows(x, offset, offset + examples), 0.4)))
      parts.push_back(value);
    offset += examples;
  }
  EXPECT_EQ(parts, whole);
}

TEST(Dropout, HandlesEmptyTensorsAndExplainsBadRates) {
  expect_tensor(nn::dropout(ones({0, 3}), 0.5), float32, {0, 3}, {});
  expect_error<InvalidArgumentError>([] { nn::dropout(ones({2}), 1.0); },
                                     "[Dropout] expected a rate in [0, 1), got 1");
  expect_error<InvalidArgumentError>([] { nn::dropout(ones({2}), -0.1); },
                                     "[Dropout] expected a rate in [0, 1)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::dropout(constant({1, 2}), 0.5);
      },
      "[Dropout] expected a floating dtype");
}

TEST(AverageLoss, DividesByTheGlobalBatch) {
  const Tensor loss = constant({1.0, 2.0, 6.0});
  EXPECT_FLOAT_EQ(nn::compute_average_loss(loss).item<float>(), 3.0f);
  EXPECT_FLOAT_EQ(nn::compute_average_loss(loss, {.global_batch_size = 12}).item<float>(), 0.75f);
  EXPECT_FLOAT_EQ(
      nn::compute_average_loss(loss, {.sample_weight = constant({0.0, 1.0, 0.5})}).item<float>(),
      5.0f / 3.0f);
  EXPECT_FLOAT_EQ(
      nn::compute_average_loss(loss, {.sample_weight = constant({0, 1, 1})}).item<float>(),
      8.0f / 3.0f);
  expect_error<InvalidArgumentError>(
      [&] { nn::compute_average_loss(loss, {.global_batch_size = 0}); },
      "expected a global batch size of 1 or more, got 0");
  expect_error<InvalidArgumentError>([] { nn::compute_average_loss(constant(1.0)); },
                                     "expected per-example losses of rank 1 or more");
}

TEST(AverageLoss, AveragesOverTheReplicasOfAStrategy) {
  const Tensor loss = constant({1.0, 2.0, 6.0});
  {
    FakeReplica replica(1, 2, 4, 9);
    const Scoped scope(context.replica, &replica);
    EXPECT_FLOAT_EQ(nn::compute_average_loss(loss).item<float>(), 1.0f);
    EXPECT_FLOAT_EQ(nn::compute_average_loss(loss, {.global_batch_size = 3}).item<float>(), 3.0f);
    EXPECT_FLOAT_EQ(nn::scale_regularization_loss(constant({3.0, 5.0})).item<float>(), 4.0f);
  }
  FakeReplica without_batch(0, 2, -1, -1);
  const Scoped scope(context.replica, &without_batch);
  EXPECT_FLOAT_EQ(nn::compute_average_loss(loss).item<float>(), 1.5f);
}

TEST(Dropout, ARateJustBelowOneDropsNearlyAll) {
  const std::vector<float> kept =
      nn::dropout(ones({1000}), std::nextafter(1.0, 0.0)).to_vector<float>();
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 0.0f), 1000);
}

}  // namespace
}  // namespace tandem::nn_dropout_test
