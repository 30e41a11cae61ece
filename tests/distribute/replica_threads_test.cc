// Replicas run on threads of their own, in the context of the call of run().
#include <gtest/gtest.h>

#include "op/context.h"
#include "support/strategies.h"
#include "tandem/tandem.h"

namespace tandem::replica_threads_test {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using testing::cpus;

// Three numbers, on one device each.
std::vector<Tensor> one_per_replica() {
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) {
    const DeviceScope on("/cpu:" + std::to_string(i));
    x.push_back(constant(2.0f + static_cast<float>(i)));
  }
  return x;
}

// 3 x^2
Tensor derivative_of_cube(const Tensor& x) {
  GradientTape tape;
  tape.watch(x);
  return tape.gradient(x * x * x, x);
}

TEST(ReplicaThreads, AnOuterTapeHasSecondDerivativesOfAllReplicas) {
  const MirroredStrategy strategy = cpus(3);
  const std::vector<Tensor> x = one_per_replica();
  GradientTape outer({.persistent = true});
  for (const Tensor& mine : x) outer.watch(mine);
  const auto first = strategy.run(derivative_of_cube, PerReplica<Tensor>(x));
  for (std::size_t r = 0; r < x.size(); ++r) {
    const double value = x[r].item<float>();
    EXPECT_EQ(first[r].item<float>(), 3 * value * value) << r;
    const Tensor second = outer.gradient(first[r], x[r]);
    ASSERT_TRUE(second.defined()) << r;
    EXPECT_EQ(second.item<float>(), 6 * value) << r;
  }
}

TEST(ReplicaThreads, AnOuterTapeInATraceHasSecondDerivativesOfAllReplicas) {
  const MirroredStrategy strategy = cpus(3);
  const auto second = function([&](const PerReplica<Tensor>& x) {
    GradientTape outer({.persistent = true});
    for (std::size_t r = 0; r < x.size(); ++r) outer.watch(x[r]);
    const auto first = strategy.run(derivative_of_cube, x);
    std::vector<Tensor> gradients;
    for (std::size_t r = 0; r < x.size(); ++r) gradients.push_back(outer.gradient(first[r], x[r]));
    return gradients;
  });
  const std::vector<Tensor> x = one_per_replica();
  const std::vector<Tensor> gradients = second(PerReplica<Tensor>(x));
  for (std::size_t r = 0; r < x.size(); ++r) {
    ASSERT_TRUE(gradients[r].defined()) << r;
    EXPECT_EQ(gradients[r].item<float>(), 6 * x[r].item<float>()) << r;
  }
}

// A function that replicas call records its backward passes under an outer tape, too.
TEST(ReplicaThreads, AnOuterTapeHasSecondDerivativesOfFunctionsThatReplicasCall) {
  const MirroredStrategy strategy = cpus(3);
  const std::vector<Tensor> x = one_per_replica();
  const auto derivative = function([](const Tensor& mine) { return derivative_of_cube(mine); });
  GradientTape outer({.persistent = true});
  for (const Tensor& mine : x) outer.watch(mine);
  const auto first =
      strategy.run([&](const Tensor& mine) { return derivative(mine); }, PerReplica<Tensor>(x));
  for (std::size_t r = 0; r < x.size(); ++r) {
    const Tensor second = outer.gradient(first[r], x[r]);
    ASSERT_TRUE(second.defined()) << r;
    EXPECT_EQ(second.item<float>(), 6 * x[r].item<float>()) << r;
  }
}

TEST(ReplicaThreads, HaveTheContextOfTheCaller) {
  const MirroredStrategy strategy = cpus(3);
  const std::string layer = "model/dense";
  Context caller = context;
  caller.records = false;
  caller.weight_dtype = bfloat16;
  caller.weighted_by_examples = true;
  caller.layer = &layer;
  caller.training = true;
  caller.worker = 2;
  {
    const Scoped scope(context, caller);
    const amp::autocast lower(bfloat16);
    strategy.run([&] {
      EXPECT_FALSE(grad_enabled());
      EXPECT_EQ(amp::autocast_dtype(), bfloat16);
      EXPECT_EQ(context.weight_dtype, bfloat16);
      EXPECT_TRUE(context.weighted_by_examples);
      EXPECT_EQ(context.layer, &layer);
      EXPECT_EQ(context.training, true);
      EXPECT_EQ(context.worker, 2u);
    });
  }
  strategy.run([] {  // on the same threads
    EXPECT_TRUE(grad_enabled());
    EXPECT_FALSE(amp::is_autocast_enabled());
    EXPECT_FALSE(context.weight_dtype);
    EXPECT_FALSE(context.training);
  });
}

}  // namespace
}  // namespace tandem::replica_threads_test
