// Random models train to the same bits traced and eagerly, on CPUs and on emulated GPUs, on one
// device and on two replicas each.
//
// TANDEM_RANDOM_PROGRAMS=N trains N models of each kind; TANDEM_RANDOM_PROGRAMS_FIRST=S begins with
// seed S. scripts/soak trains more of them.
#include <gtest/gtest.h>

#include <cmath>

#include "support/gpus.h"
#include "support/outcomes.h"
#include "support/tensors.h"
#include "train/random_model.h"

namespace tandem::random_models_test {
namespace {

using distribute::Strategy;
using testing::RandomModel;
using testing::Tensors;

Tensors trained(const RandomModel& what, const Strategy& strategy, bool run_eagerly) {
  Model model;
  {
    const auto scope = strategy.scope();
    model = what.make(run_eagerly);
  }
  return what.train(model);
}

// Compares models with those of the first strategy, trained eagerly. The kernels of real GPUs round
// differently than a CPU's: there, the models of the last strategy are compared alone.
void compare(const std::string& policy, std::vector<Strategy> strategies) {
  if (testing::has_real_gpus()) strategies.erase(strategies.begin(), strategies.end() - 1);
  testing::for_each_seed(4, [&](std::uint32_t seed) {
    const RandomModel what{.seed = seed, .policy = policy};
    const auto expected = testing::bits_of(trained(what, strategies[0], true));
    std::vector<std::vector<std::string>> actual;
    for (const Strategy& strategy : strategies)
      actual.push_back(testing::bits_of(trained(what, strategy, false)));
    testing::expect_equal(seed, actual, expected);
  });
}

Strategy mirrored(const char* device) {
  return distribute::MirroredStrategy(
      {.devices = {std::string(device) + ":0", std::string(device) + ":1"}});
}

class RandomModels : public ::testing::TestWithParam<const char*> {
 protected:
  RandomModels() {
    config::set_logical_cpus(2);
    testing::use_gpus(2, 1024);
  }
};

TEST_P(RandomModels, TrainToTheSameBitsOnOneDevice) {
  compare(GetParam(),
          {distribute::OneDeviceStrategy("/cpu:0"), distribute::OneDeviceStrategy("/gpu:0")});
}

TEST_P(RandomModels, TrainToTheSameBitsOnTwoReplicas) {
  compare(GetParam(), {mirrored("/cpu"), mirrored("/gpu")});
}

INSTANTIATE_TEST_SUITE_P(Policy, RandomModels,
                         ::testing::Values("float32", "float64", "mixed_bfloat16", "mixed_float16"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RandomModelsOnReplicas, TrainAsOnOneDevice) {
  config::set_logical_cpus(2);
  testing::for_each_seed(6, [](std::uint32_t seed) {
    const RandomModel what{.seed = seed, .policy = "float64", .per_example = true};
    const Tensors one = trained(what, distribute::OneDeviceStrategy("/cpu:0"), false),
                  two = trained(what, mirrored("/cpu"), false);
    ASSERT_EQ(one.size(), two.size());
    // Where training diverges, so does the rounding.
    for (const Tensor& values : one)
      for (const double value : testing::values_of(values))
        if (!(std::abs(value) < 1e9)) return;
    SCOPED_TRACE("TANDEM_RANDOM_PROGRAMS_FIRST=" + std::to_string(seed));
    for (std::size_t i = 0; i < one.size(); ++i)
      testing::expect_tensor(two[i], one[i].dtype(), one[i].shape(), testing::values_of(one[i]),
                             1e-9);
  });
}

}  // namespace
}  // namespace tandem::random_models_test
