// Dtype policies with second-order gradients, checkpoints and saved weights.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::policy_training_test {
namespace {

using testing::values_of;

Sequential make_net(const DTypePolicy& policy) {
  random::set_seed(3);
  return Sequential({layers::Dense(4, {.activation = "tanh", .input_shape = {3}, .dtype = policy}),
                     layers::Dense(1, {.dtype = policy})});
}

// d2 loss / dx2, summed, by a tape in a tape.
std::vector<double> second_order(const DTypePolicy& policy) {
  const Sequential net = make_net(policy);
  const Tensor x = full({2, 3}, 0.25);
  GradientTape outer;
  outer.watch(x);
  Tensor slope;
  {
    GradientTape inner;
    inner.watch(x);
    const Tensor loss = reduce_sum(cast(net(x), float32));
    slope = inner.gradient(loss, {x})[0];
  }
  const Tensor second = outer.gradient(reduce_sum(square(slope)), {x})[0];
  EXPECT_EQ(second.dtype(), float32);
  return values_of(second);
}

TEST(PolicyTraining, SecondOrderGradientsPassThroughTheCasts) {
  const std::vector<double> exact = second_order("float32"), mixed = second_order("mixed_bfloat16");
  ASSERT_EQ(exact.size(), mixed.size());
  double largest = 0.0;
  for (double value : exact) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_NEAR(mixed[i], exact[i], 0.05 * largest) << i;
}

TEST(PolicyTraining, WeightsMoveBetweenPolicies) {
  const testing::TemporaryDirectory folder;
  const Sequential plain = make_net("float32"), mixed = make_net("mixed_bfloat16");
  Variable(plain.variables()[0]).assign(ones({3, 4}) * 0.5);
  plain.save_weights(folder.path() / "weights.safetensors");
  Sequential(mixed).load_weights(folder.path() / "weights.safetensors");
  for (std::size_t i = 0; i < plain.variables().size(); ++i)
    EXPECT_EQ(values_of(mixed.variables()[i]), values_of(plain.variables()[i]));
}

TEST(PolicyTraining, TheLossScaleIsRestoredFromACheckpoint) {
  const Variable weight(ones({2}));
  auto optimizer = optimizers::LossScaleOptimizer(optimizers::Adam(0.1));
  const auto minimize = [&](double x) {
    optimizer.minimize(reduce_sum(weight.value() * x), {weight});
  };
  minimize(1.0);
  minimize(std::numeric_limits<double>::infinity());
  std::vector<Tensor> saved;
  for (const Variable& variable : optimizer.variables()) saved.push_back(variable.value() + 0);
  auto other = optimizers::LossScaleOptimizer(optimizers::Adam(0.1));
  other.build({weight});
  const std::vector<Variable> state = other.variables();
  ASSERT_EQ(state.size(), saved.size());
  for (std::size_t i = 0; i < state.size(); ++i) Variable(state[i]).assign(saved[i]);
  EXPECT_EQ(other.loss_scale(), 32768.0);
  EXPECT_EQ(other.iterations(), 1);
}

}  // namespace
}  // namespace tandem::policy_training_test
