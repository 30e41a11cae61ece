// Small versions of the models of benchmarks/: they train eagerly and traced, in float32 and in
// mixed precision.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "cases.h"

namespace tandem::benchmark_cases_test {
namespace {

constexpr int kSteps = 8;

std::vector<float> losses_of(const std::string& name, const char* policy, bool traced) {
  mixed_precision::set_global_policy(policy);
  const bench::ModelCase what = bench::find_case(name, true);
  const Model model = bench::make_model(what);
  auto optimizer = optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  const std::vector<Variable> variables = model.trainable_variables();
  const auto step = [&](const bench::Example& batch) {
    return bench::train_step(model, optimizer, variables, batch, what.batch);
  };
  const bench::Example batch = bench::make_pool(what, what.batch)[0];
  std::vector<float> losses;
  const auto train = [&](const auto& run) {
    for (int i = 0; i < kSteps; ++i) losses.push_back(run(batch).template item<float>());
  };
  if (traced)
    train(function(step));
  else
    train(step);
  for (const Variable& variable : variables) EXPECT_EQ(variable.dtype(), float32);
  return losses;
}

class BenchmarkCases : public ::testing::TestWithParam<const char*> {};

TEST_P(BenchmarkCases, LearnAndTracedEqualsEager) {
  const std::vector<float> eager = losses_of(GetParam(), "float32", false);
  EXPECT_LT(eager.back(), 0.9f * eager.front());
  const std::vector<float> traced = losses_of(GetParam(), "float32", true);
  for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(traced[i], eager[i], 1e-3f * eager[i]) << i;
}

TEST_P(BenchmarkCases, TrainInMixedPrecision) {
  const std::vector<float> wide = losses_of(GetParam(), "float32", false);
  for (const bool traced : {false, true}) {
    const std::vector<float> mixed = losses_of(GetParam(), "mixed_bfloat16", traced);
    EXPECT_NE(mixed, wide);
    EXPECT_LT(mixed.back(), 0.9f * mixed.front());
    for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(mixed[i], wide[i], 0.05f * wide[0]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BenchmarkCases,
                         ::testing::Values("mlp64", "lenet64", "resnet20", "transformer4"));

}  // namespace
}  // namespace tandem::benchmark_cases_test
