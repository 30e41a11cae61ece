// Errors identify variables without a name.
#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::unnamed_variables_test {
namespace {

using testing::expect_error;

TEST(UnnamedVariables, AreIdentifiedByShapeAndDType) {
  Variable v(zeros({3, 4}));
  expect_error<InvalidArgumentError>(
      [&] { v.assign(zeros({2})); },
      "[assign] variable (unnamed, of shape (3, 4) and dtype float32) has shape (3, 4)");
  expect_error<InvalidArgumentError>([&] { v.set_grad(zeros({2})); },
                                     "[set_grad] variable (unnamed, of shape (3, 4)");
  const Variable count(zeros({}, {.dtype = int64}));
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 0.1});
  expect_error<InvalidArgumentError>(
      [&] { sgd.apply_gradients({zeros({2})}, {v}); },
      "for variable (unnamed, of shape (3, 4) and dtype float32), got (2,)");
  expect_error<InvalidArgumentError>(
      [&] { sgd.apply_gradients({Tensor()}, {v}); },
      "any variable: [(unnamed, of shape (3, 4) and dtype float32)]");
  expect_error<InvalidArgumentError>(
      [&] { sgd.minimize(reduce_sum(v), {count}); },
      "variable (unnamed, of shape () and dtype int64) is not trainable");
}

TEST(UnnamedVariables, NamedOnesAreIdentifiedByName) {
  Variable v(zeros({3}), {.name = "v"});
  expect_error<InvalidArgumentError>([&] { v.assign(zeros({2})); },
                                     "[assign] variable 'v' has shape (3,)");
}

}  // namespace
}  // namespace tandem::unnamed_variables_test
