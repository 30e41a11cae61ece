#include "tandem/autodiff.h"

#include <gtest/gtest.h>

#include "tandem/tandem.h"

namespace tandem::tape_test {
namespace {

float at(const Tensor& tensor) { return tensor.item<float>(); }

TEST(GradientTape, DifferentiatesWatchedTensors) {
  const Tensor x = constant(3.0);
  GradientTape tape;
  tape.watch(x);
  const Tensor y = x * x * 2.0;
  EXPECT_FLOAT_EQ(at(tape.gradient(y, x)), 12.0f);
}

TEST(GradientTape, WatchesTrainableVariablesByDefault) {
  const Variable w(constant(2.0)), frozen(constant(5.0), {.trainable = false});
  GradientTape tape;
  const Tensor y = w * frozen * w;
  const auto gradients = tape.gradient(y, std::vector<Variable>{w, frozen});
  EXPECT_FLOAT_EQ(at(gradients[0]), 20.0f);
  EXPECT_FALSE(gradients[1].defined());
}

TEST(GradientTape, WatchingVariablesCanBeDisabled) {
  const Variable a(constant(2.0)), b(constant(3.0));
  GradientTape tape({.watch_accessed_variables = false});
  tape.watch(a);
  const Tensor y = a * b;
  const auto gradients = tape.gradient(y, std::vector<Variable>{a, b});
  EXPECT_FLOAT_EQ(at(gradients[0]), 3.0f);
  EXPECT_FALSE(gradients[1].defined());
}

TEST(GradientTape, UnconnectedSourcesAreNoneOrZeros) {
  const Variable used(constant(2.0)), unused(ones({2, 3}));
  GradientTape tape({.persistent = true});
  const Tensor y = used * used;
  EXPECT_FALSE(tape.gradient(y, unused).defined());
  const Tensor zero =
      tape.gradient(y, unused, {.unconnected_gradients = UnconnectedGradients::kZero});
  EXPECT_EQ(zero.shape(), (Shape{2, 3}));
  EXPECT_EQ(zero.to_vector<float>(), std::vector<float>(6, 0.0f));
}

TEST(GradientTape, TakesSourcesInBraces) {
  const Variable a(constant(2.0f)), b(constant(3.0f));
  GradientTape tape({.persistent = true});
  const Tensor target = a * b * b;
  const auto gradients = tape.gradient(target, {a, b});
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_EQ(gradients[0].item<float>(), 9.0f);
  EXPECT_EQ(gradients[1].item<float>(), 12.0f);
}

TEST(GradientTape, NonPersistentWorksOnce) {
  const Variable x(constant(2.0));
  GradientTape tape;
  const Tensor y = x * x;
  tape.gradient(y, x);
  try {
    tape.gradient(y, x);
    FAIL();
  } catch (const RuntimeError& error) {
    EXPECT_STREQ(error.what(),
                 "A non-persistent GradientTape can only be used to compute one set of gradients "
                 "(or jacobians)");
  }
}

TEST(GradientTape, PersistentWorksAgain) {
  const Variable x(constant(2.0));
  GradientTape tape({.persistent = true});
  const Tensor y = x * x, z = y * x;
  EXPECT_FLOAT_EQ(at(tape.gradient(y, x)), 4.0f);
  EXPECT_FLOAT_EQ(at(tape.gradient(z, x)), 12.0f);
  EXPECT_FLOAT_EQ(at(tape.gradient(z, y)), 2.0f);
}

TEST(GradientTape, IntermediatesAreSourcesToo) {
  const Variable x(constant(3.0));
  GradientTape tape;
  const Tensor y = x * x;
  const Tensor z = y * y;
  EXPECT_FLOAT_EQ(at(tape.gradient(z, y)), 18.0f);
}

// As TensorFlow's tapes, which stop at their sources.
TEST(GradientTape, DoesNotGoThroughTheRecordsOfEarlierTapes) {
  Tensor z = constant(1.0);
  for (int step = 0; step < 6; ++step) {
    GradientTape tape;
    tape.watch(z);
    z = z - 0.1 * tape.gradient(z * z, z);  // recorded, too
  }
  EXPECT_FLOAT_EQ(at(z), 0.262144f);

  Tensor y;
  {
    GradientTape tape;
    const Tensor a = constant(1.0);
    tape.watch(a);
    y = a * 3.0;
  }
  for (int i = 0; i < 3; ++i) {
    GradientTape tape;
    tape.watch(y);
    EXPECT_FLOAT_EQ(at(tape.gradient(y * y, y)), 6.0f);
  }
}

TEST(GradientTape, SourcesBeforeAnotherSourceHaveTheirGradients) {
  const Tensor a = constant(2.0);
  GradientTape tape;
  tape.watch(a);
  const Tensor b = a * a, c = b * 3.0, d = c * c;
  const auto gradients = tape.gradient(d, std::vector<Tensor>{a, c, b});
  EXPECT_FLOAT_EQ(at(gradients[0]), 4.0f * 9 * 8);  // d = 9 a^4
  EXPECT_FLOAT_EQ(at(gradients[1]), 24.0f);
  EXPECT_FLOAT_EQ(at(gradients[2]), 2.0f * 9 * 4);
}

// A pass frees what it has gone through, and no more.
TEST(GradientTape, LeavesOtherRecordsToTheirOwnBackwardPass) {
  Tensor a = constant(2.0);
  a.set_requires_grad();
  const Tensor b = a * a, other = b * 5.0;
  {
    GradientTape tape;
    EXPECT_FLOAT_EQ(at(tape.gradient(b * b + other.detach(), b)), 8.0f);
  }
  other.backward();
  EXPECT_FLOAT_EQ(at(a.grad()), 20.0f);
}

TEST(GradientTape, NestedTapesGiveHigherOrders) {
  const Tensor x = constant(2.0);
  GradientTape outer;
  outer.watch(x);
  GradientTape middle;
  middle.watch(x);
  Tensor first;
  {
    GradientTape inner;
    inner.watch(x);
    first = inner.gradient(x * x * x * x, x);  // 4 x^3
  }
  const Tensor second = middle.gradient(first, x);  // 12 x^2
  const Tensor third = outer.gradient(second, x);   // 24 x
  EXPECT_FLOAT_EQ(at(first), 32.0f);
  EXPECT_FLOAT_EQ(at(second), 48.0f);
  EXPECT_FLOAT_EQ(at(third), 48.0f);
}

TEST(GradientTape, OnePersistentTapeGivesSecondOrder) {
  const Tensor x = constant(2.0);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor first = tape.gradient(x * x * x, x);
  EXPECT_FLOAT_EQ(at(tape.gradient(first, x)), 12.0f);
}

TEST(GradientTape, OutputGradientWeighsTheTarget) {
  const Variable x(constant({1.0, 2.0}));
  GradientTape tape({.persistent = true});
  const Tensor y = x * x;
  EXPECT_EQ(tape.gradient(y, x, {.output_gradient = constant({1.0, 10.0})}).to_vector<float>(),
            (std::vector<float>{2.0f, 40.0f}));
  EXPECT_THROW(tape.gradient(y, x, {.output_gradient = constant(1.0)}), InvalidArgumentError);
}

// As in TensorFlow: None, and zeros for sign.
TEST(GradientTape, RoundingHasNoGradient) {
  const Tensor x = constant({-1.5, 0.0, 2.5}), y = constant({2.0, 2.0, 2.0});
  for (const auto& rounded : {floor, ceil, round}) {
    GradientTape tape;
    tape.watch(x);
    EXPECT_FALSE(tape.gradient(rounded(x), x).defined());
  }
  GradientTape tape({.persistent = true});
  tape.watch(x);
  tape.watch(y);
  const Tensor quotient = floor_divide(x, y);
  EXPECT_FALSE(tape.gradient(quotient, x).defined());
  EXPECT_FALSE(tape.gradient(quotient, y).defined());
  EXPECT_EQ(tape.gradient(sign(x), x).to_vector<float>(), std::vector<float>(3, 0.0f));
  EXPECT_EQ(tape.gradient(x - floor(x), x).to_vector<float>(), std::vector<float>(3, 1.0f));
  // The first derivative of |x| is its sign, the second zero.
  const Tensor first = tape.gradient(abs(x), x);
  EXPECT_EQ(first.to_vector<float>(), (std::vector<float>{-1.0f, 0.0f, 1.0f}));
  EXPECT_EQ(tape.gradient(first, x).to_vector<float>(), std::vector<float>(3, 0.0f));
}

TEST(GradientTape, RefusesIntegers) {
  GradientTape tape;
  EXPECT_THROW(tape.watch(constant(1)), InvalidArgumentError);
}

TEST(GradientTape, AWatchedTensorIsPlainAgainAfterwards) {
  const Tensor x = constant(3.0);
  {
    GradientTape tape;
    tape.watch(x);
    EXPECT_TRUE(x.requires_grad());
  }
  EXPECT_FALSE(x.requires_grad());
}

TEST(GradientTape, AssigningAfterTheForwardPassDoesNotChangeTheGradient) {
  Variable w(constant(2.0));
  GradientTape tape;
  const Tensor y = w * w;
  w.assign(constant(100.0));
  EXPECT_FLOAT_EQ(at(tape.gradient(y, w)), 4.0f);
  EXPECT_FLOAT_EQ(at(w.value()), 100.0f);
}

TEST(NoGradScope, KeepsAPersistentTapeFromRecordingItsGradients) {
  GradientTape tape({.persistent = true});
  const Tensor x = constant({2.0, -1.0}, {.dtype = float64});
  tape.watch(x);
  const Tensor y = x * x * x;
  for (int call = 0; call < 2; ++call) {
    const Tensor recorded = tape.gradient(y, x);
    EXPECT_EQ(recorded.to_vector<double>(), (std::vector<double>{12.0, 3.0}));
    EXPECT_EQ(tape.gradient(recorded, x).to_vector<double>(), (std::vector<double>{12.0, -6.0}));
    const NoGradScope first_order;
    const Tensor unrecorded = tape.gradient(y, x);
    EXPECT_EQ(unrecorded.to_vector<double>(), (std::vector<double>{12.0, 3.0}));
    EXPECT_FALSE(tape.gradient(unrecorded, x).defined());
  }
}

TEST(NoGradScope, RecordsNothing) {
  const Variable w(constant(2.0));
  NoGradScope no_grad;
  EXPECT_FALSE(grad_enabled());
  EXPECT_FALSE((w * w).requires_grad());
}

TEST(Backward, AccumulatesInGrad) {
  Variable w(constant(3.0));
  (w * w).backward();
  EXPECT_FLOAT_EQ(at(w.grad()), 6.0f);
  (w * 2.0).backward();
  EXPECT_FLOAT_EQ(at(w.grad()), 8.0f);
  w.zero_grad();
  EXPECT_FALSE(w.grad().defined());
}

TEST(Backward, SumsOverAllUses) {
  Tensor x = constant({1.0, 2.0});
  x.set_requires_grad();
  const Tensor y = x * x + x;
  reduce_sum(y * x).backward();  // x^3 + x^2
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{5.0f, 16.0f}));
}

TEST(Backward, FreesTheSavedTensorsUnlessRetained) {
  const Variable w(constant(3.0));
  const Tensor y = w * w;
  y.backward({.retain_graph = true});
  y.backward();
  EXPECT_FLOAT_EQ(at(w.grad()), 12.0f);
  try {
    y.backward();
    FAIL();
  } catch (const RuntimeError& error) {
    EXPECT_NE(std::string(error.what()).find("a second time"), std::string::npos) << error.what();
  }
}

TEST(Backward, RequiresAScalarOrAGradient) {
  const Variable w(constant({1.0, 2.0}));
  const Tensor y = w * w;
  EXPECT_THROW(y.backward(), InvalidArgumentError);
  y.backward(constant({1.0, 10.0}));
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{2.0f, 40.0f}));
}

TEST(Backward, OfAConstantIsAnError) {
  EXPECT_THROW(constant(1.0).backward(), FailedPreconditionError);
}

TEST(Backward, HandlesLongChains) {
  Tensor x = constant(1.0);
  x.set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 200'000; ++i) y = y + 0.0;
  y.backward();
  EXPECT_FLOAT_EQ(at(x.grad()), 1.0f);
  for (int i = 0; i < 200'000; ++i) y = x + 0.0;
  Tensor z = x;
  for (int i = 0; i < 200'000; ++i) z = z + 0.0;
  z = {};  // freed without a backward pass
}

TEST(Backward, CreateGraphRecordsThePass) {
  Tensor x = constant(2.0);
  x.set_requires_grad();
  (x * x * x).backward({.create_graph = true});
  const Tensor first = x.grad();
  EXPECT_TRUE(first.requires_grad());
  x.zero_grad();
  first.backward();
  EXPECT_FLOAT_EQ(at(x.grad()), 12.0f);
}

TEST(Tensor, DetachRemovesTheGradientEdge) {
  const Variable w(constant(2.0));
  EXPECT_FALSE((w * w).detach().requires_grad());
}

}  // namespace
}  // namespace tandem::tape_test
