// Single gradients of a DistributedOptimizer and of a DistributedGradientTape.
#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::gradients_test {
namespace {

using testing::expect_error;
using testing::expect_hvd;
using testing::values_of;

TEST(HvdGradients, GradientsThatAreHeldKeepTheirElements) {
  expect_hvd(2, [](int rank) {
    const Variable w(constant({1.0f, 2.0f}));
    std::vector<Tensor> held;
    hvd::DistributedGradientTape tape({.op = hvd::kSum}, {.persistent = true});
    const Tensor loss = reduce_sum(w * static_cast<double>(rank + 1));
    for (int i = 0; i < 4; ++i) held.push_back(tape.gradient(loss * (i + 1.0), {w}).front());
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(values_of(held[static_cast<std::size_t>(i)]),
                (std::vector<double>{3.0 * (i + 1), 3.0 * (i + 1)}));
  });
}

TEST(HvdGradients, ReducedGradientsAreWhereTheirVariablesAre) {
  expect_hvd(2,
             [](int) {
               std::vector<Variable> variables;
               for (const char* device : {"/cpu:0", "/gpu:0"}) {
                 const DeviceScope on(device);
                 variables.emplace_back(ones({2}));
               }
               hvd::DistributedGradientTape tape({.op = hvd::kSum});
               const Tensor loss = reduce_sum(variables[0].value() + variables[1].value());
               const std::vector<Tensor> gradients = tape.gradient(loss, variables);
               for (std::size_t i = 0; i < 2; ++i) {
                 EXPECT_EQ(gradients[i].device(), variables[i].value().device());
                 EXPECT_EQ(values_of(gradients[i]), (std::vector<double>{2, 2}));
               }
             },
             {{"TANDEM_EMULATED_GPUS", "1"}});
}

// Each dtype has its own bucket. No operation stays in progress.
TEST(HvdGradients, TheJobContinuesAfterMismatchedGradients) {
  expect_hvd(2, [](int rank) {
    const Variable odd(zeros({rank + 1})), a(zeros({2})), b(zeros({2}, {.dtype = float64}));
    auto optimizer =
        hvd::DistributedOptimizer(optimizers::SGD({.learning_rate = 1.0}), {.op = hvd::kSum});
    const Tensor one = ones({2}), two = full({2}, 2.0, {.dtype = float64});
    for (int step = 0; step < 2; ++step)
      expect_error<InvalidArgumentError>(
          [&] {
            optimizer.apply_gradients({ones({rank + 1}), one, two}, {odd, a, b});
          },
          "Mismatched ALLREDUCE tensor shapes");
    optimizer.apply_gradients({one, two}, {a, b});
    EXPECT_EQ(values_of(a.value()), (std::vector<double>{-2, -2}));
    EXPECT_EQ(values_of(b.value()), (std::vector<double>{-4, -4}));
  });
}

TEST(HvdGradients, AVariableWithoutGradientAnywhereStays) {
  expect_hvd(2, [](int rank) {
    const Variable a(constant({1.0f})), b(constant({1.0f})), c(constant({1.0f}));
    auto optimizer =
        hvd::DistributedOptimizer(optimizers::SGD({.learning_rate = 1.0, .weight_decay = 0.5}));
    for (int step = 0; step < 3; ++step) {
      // Only rank 1 uses b, and no rank uses c.
      const Tensor loss = rank == 1 ? reduce_sum(a + b) : reduce_sum(a.value());
      optimizer.minimize(loss, {a, b, c});
    }
    EXPECT_LT(a.value().item<float>(), 0.0f);
    EXPECT_LT(b.value().item<float>(), 0.5f);
    EXPECT_EQ(c.value().item<float>(), 1.0f);
    EXPECT_EQ(values_of(hvd::allgather(b.value()))[0], values_of(hvd::allgather(b.value()))[1]);
  });
}

}  // namespace
}  // namespace tandem::gradients_test
