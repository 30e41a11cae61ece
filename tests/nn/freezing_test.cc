// Layer::set_trainable() under every way of training.
#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::freezing_test {
namespace {

using testing::values_of;

// "b" is never frozen.
struct TwoLayers {
  Layer a = layers::Dense(2, {.kernel_initializer = initializers::ones(), .name = "a"});
  Layer b = layers::Dense(1, {.kernel_initializer = initializers::ones(), .name = "b"});
  Sequential model{{a, b}};

  TwoLayers() { model(ones({1, 2})); }
  std::vector<double> kernel(const Layer& layer) const {
    return values_of(layer.variables()[0].value());
  }
};

using Step = std::function<void()>;
using MakeStep = std::function<Step(TwoLayers&, optimizers::Optimizer&)>;

Tensor loss_of(const TwoLayers& net) {
  return reduce_mean(net.model(ones({2, 2}), {.training = true}));
}

Step torch_style(TwoLayers& net, optimizers::Optimizer& optimizer) {
  return [&] {
    optimizer.zero_grad();
    loss_of(net).backward();
    optimizer.step();
  };
}
Step with_a_scaler(TwoLayers& net, optimizers::Optimizer& optimizer) {
  return [&, scaler = amp::GradScaler()]() mutable {
    optimizer.zero_grad();
    scaler.scale(loss_of(net)).backward();
    scaler.step(optimizer);
    scaler.update();
  };
}
Step minimizing(TwoLayers& net, optimizers::Optimizer& optimizer) {
  return [&] {
    const GradientTape tape;
    optimizer.minimize(loss_of(net), net.model.trainable_variables());
  };
}
Step traced(const Step& step) {
  return [step, program = function([step](const Tensor& x) {
                  step();
                  return x;
                })] { program(ones({})); };
}

TEST(FreezingLayers, HoldsInEveryWayOfTraining) {
  for (const bool traces : {false, true})
    for (const MakeStep& make :
         {MakeStep(torch_style), MakeStep(with_a_scaler), MakeStep(minimizing)}) {
      SCOPED_TRACE(traces);
      TwoLayers net;
      // Its decay and its moments would change weights without a gradient.
      auto optimizer =
          optimizers::AdamW({.learning_rate = 0.1, .weight_decay = 0.5}, net.model.parameters());
      Step step = make(net, optimizer);
      if (traces) step = traced(step);
      const auto changes = [&](const Layer& layer) {
        const std::vector<double> before = net.kernel(layer);
        step();
        return net.kernel(layer) != before;
      };
      EXPECT_TRUE(changes(net.a));
      net.a.set_trainable(false);
      EXPECT_FALSE(changes(net.a));
      EXPECT_TRUE(changes(net.b));
      EXPECT_FALSE(net.a.variables()[0].grad().defined());
      net.a.set_trainable(true);
      EXPECT_TRUE(changes(net.a));
    }
}

TEST(FreezingLayers, BackwardComputesNoGradientOfThem) {
  const TwoLayers net;
  const Variable kernel = net.a.variables()[0];
  EXPECT_TRUE(kernel.value().requires_grad());
  loss_of(net).backward();
  net.a.set_trainable(false);
  EXPECT_FALSE(kernel.trainable());
  EXPECT_FALSE(kernel.value().requires_grad());
  EXPECT_FALSE(kernel.grad().defined()) << "that of the last pass is gone";
  loss_of(net).backward();
  EXPECT_FALSE(kernel.grad().defined());
  EXPECT_EQ(net.model.trainable_variables().size(), 2U);
  GradientTape tape;
  tape.watch(kernel);
  EXPECT_TRUE(tape.gradient(loss_of(net), kernel).defined()) << "a tape may watch it";
}

TEST(FreezingLayers, VariablesThatAreMadeLaterAreFrozen) {
  const Layer dense = layers::Dense(2), stack = layers::Stack({dense});
  stack.set_trainable(false);
  const Layer late = layers::Dense(1);
  const Sequential model({stack, late});
  late.set_trainable(false);
  model(ones({1, 2}));
  EXPECT_TRUE(model.trainable_variables().empty());
  EXPECT_FALSE(dense.variables()[0].value().requires_grad());
  dense.set_trainable(true);
  EXPECT_EQ(model.trainable_variables().size(), 2U) << "the last call decides";
}

TEST(FreezingLayers, UnfreezingLeavesUntrainableVariables) {
  const Layer normalize = layers::BatchNormalization();
  normalize(ones({2, 3}));
  EXPECT_EQ(normalize.trainable_variables().size(), 2U);
  normalize.set_trainable(false);
  EXPECT_TRUE(normalize.trainable_variables().empty());
  normalize.set_trainable(true);
  EXPECT_EQ(normalize.trainable_variables().size(), 2U);
}

TEST(FreezingLayers, AFrozenNormalizationIsTracedAgain) {
  const Layer normalize = layers::BatchNormalization({.center = false, .scale = false});
  const auto step = function([&](const Tensor& x) { return normalize(x, {.training = true}); });
  const auto mean = [&] { return values_of(normalize.variables()[0].value()); };
  const Tensor x = constant({{1.0}, {3.0}});
  step(x);
  const std::vector<double> before = mean();
  normalize.set_trainable(false);
  step(x);
  EXPECT_EQ(mean(), before);
}

TEST(FreezingLayers, AFunctionThatFreezesIsTracedOnce) {
  const TwoLayers net;
  auto sgd = optimizers::SGD(0.1);
  const auto only_b = function([&](const Tensor& x) {
    net.a.set_trainable(false);
    sgd.minimize(reduce_mean(net.model(x)), net.model.trainable_variables());
    net.a.set_trainable(true);
  });
  const std::vector<double> before = net.kernel(net.a);
  for (int i = 0; i < 3; ++i) only_b(ones({2, 2}));
  EXPECT_EQ(only_b.num_traces(), 1U);
  EXPECT_EQ(net.kernel(net.a), before);
  EXPECT_TRUE(net.a.variables()[0].trainable());
}

TEST(FreezingLayers, HoldsInTheReplicasOfAStrategy) {
  config::set_logical_cpus(2);
  const distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  const auto scope = strategy.scope();
  const TwoLayers net;
  auto sgd = optimizers::SGD(0.1);
  const auto step = function([&] {
    strategy.run([&] {
      const GradientTape tape;
      const Tensor loss = loss_of(net);
      EXPECT_EQ(net.a.variables()[0].value().requires_grad(), net.a.trainable());
      sgd.minimize(loss, net.model.trainable_variables());
      return loss;
    });
    return ones({});
  });
  step();
  const std::vector<double> before = net.kernel(net.a), other = net.kernel(net.b);
  net.a.set_trainable(false);
  step();
  EXPECT_EQ(net.kernel(net.a), before);
  EXPECT_NE(net.kernel(net.b), other);
  net.a.set_trainable(true);
  step();
  EXPECT_NE(net.kernel(net.a), before);
}

}  // namespace
}  // namespace tandem::freezing_test
