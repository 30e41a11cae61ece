// The models of benchmarks/ in small, by TPUStrategy and by MirroredStrategy over as many CPUs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cases.h"
#include "support/pjrt.h"

namespace tandem::tpu_models_test {
namespace {

using distribute::MirroredStrategy;
using distribute::Strategy;
using distribute::TPUStrategy;

constexpr int kSteps = 50;
constexpr std::int64_t kBatch = 32;

struct Trained {
  std::vector<float> losses;
  std::vector<std::vector<float>> weights;
};

// In steps of a larger rate, batch normalisation over so few images amplifies the rounding
// differences of the two compilers some times per step.
double learning_rate_of(const std::string& name) { return name == "resnet20" ? 2e-4 : 0.01; }

Trained train(const std::string& name, const Strategy& strategy) {
  random::set_seed(1);
  const bench::ModelCase what = bench::find_case(name, true);
  const auto scope = strategy.scope();
  const Model model = bench::make_model(what);
  auto optimizer = optimizers::SGD({.learning_rate = learning_rate_of(name), .momentum = 0.9});
  const std::vector<Variable> variables = model.trainable_variables();
  using Examples = distribute::PerReplica<bench::Example>;
  const auto step = function([&](const Examples& examples) {
    return strategy.reduce(ReduceOp::kSum, strategy.run(
                                               [&](const bench::Example& mine) {
                                                 return bench::train_step(model, optimizer,
                                                                          variables, mine, kBatch);
                                               },
                                               examples));
  });
  const std::vector<Examples> pool = bench::make_pool(what, kBatch, strategy);
  Trained trained;
  for (int i = 0; i < kSteps; ++i)
    trained.losses.push_back(step(pool[static_cast<std::size_t>(i) % pool.size()]).item<float>());
  for (const Variable& variable : model.variables())
    trained.weights.push_back(variable.value().to_vector<float>());
  return trained;
}

class TpuModelsSlow : public ::testing::TestWithParam<const char*> {};

TEST_P(TpuModelsSlow, TrainLikeMirrored) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  config::set_logical_cpus(4);
  config::load_pjrt_plugin(testing::first_plugin());
  const Trained compiled = train(GetParam(), TPUStrategy());
  EXPECT_LT(compiled.losses.back(), 0.9f * compiled.losses.front());
  const Trained mirrored =
      train(GetParam(), MirroredStrategy({.devices = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"}}));
  ASSERT_EQ(compiled.weights.size(), mirrored.weights.size());
  for (std::size_t v = 0; v < compiled.weights.size(); ++v)
    for (std::size_t i = 0; i < compiled.weights[v].size(); ++i)
      ASSERT_NEAR(compiled.weights[v][i], mirrored.weights[v][i], 1e-4)
          << "variable " << v << ", element " << i;
}

INSTANTIATE_TEST_SUITE_P(All, TpuModelsSlow,
                         ::testing::Values("mlp512", "lenet64", "resnet20", "transformer4"));

}  // namespace
}  // namespace tandem::tpu_models_test
