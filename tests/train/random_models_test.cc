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

// The results of three steps of a function, the last one with a smaller batch if its size is open,
// and the variables after them.
Tensors trained_in_function(const RandomModel& what, const std::vector<InputSpec>& signature) {
  const Model model = what.make(false);
  model(ones({1, 6, 6, 4}));
  const std::vector<Variable> variables = model.trainable_variables();
  optimizers::Optimizer optimizer = optimizers::Adam(0.01);
  const losses::Loss loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  const auto step = function(
      [&](const Tensor& x, const Tensor& y) {
        GradientTape tape;
        const Tensor predicted = model(x, true), value = loss(y, predicted);
        Tensors results = tape.gradient(value, variables);
        optimizer.apply_gradients(results, variables);
        results.insert(results.end(), {predicted, value});
        return results;
      },
      {.input_signature = signature});
  random::set_seed(what.seed + 1);
  Tensors results;
  for (const std::int64_t batch : {8, 8, 4}) {
    const Tensor x = random::normal({8, 6, 6, 4}), y = random::uniform_int({8}, 0, 3);
    for (const Tensor& result : step(x.slice(0, 0, batch), y.slice(0, 0, batch)))
      results.push_back(result);
  }
  for (const Variable& variable : model.variables()) results.push_back(variable.value());
  return results;
}

TEST(RandomModelsOfUnknownSizes, TrainToTheBitsOfKnownOnes) {
  testing::for_each_seed(6, [](std::uint32_t seed) {
    const RandomModel what{.seed = seed};
    testing::Choices choices(seed);
    Shape images{-1, 6, 6, 4};
    for (int axis = 1; axis < images.rank(); ++axis)
      if (choices.pick(2) == 0) images.set(axis, -1);
    SCOPED_TRACE("images of shape " + images.to_string());
    testing::expect_equal(
        seed,
        {testing::bits_of(trained_in_function(what, {{images, float32}, {Shape{-1}, int32}}))},
        testing::bits_of(trained_in_function(what, {})));
  });
}

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
