// Gradients of calls of traced functions.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/variable_impl.h"
#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::function_gradient_test {
namespace {

using testing::random_tensor;
using testing::values_of;

using Unary = std::function<Tensor(const Tensor&)>;

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance = 1e-6) {
  ASSERT_TRUE(actual.defined());
  testing::expect_tensor(actual, expected.dtype(), expected.shape(), values_of(expected),
                         tolerance);
}

// Reads of variables, views, constants and captured tensors.
struct Parts {
  Variable w{random_tensor({3, 4}, 1)}, b{random_tensor({4}, 2)};
  Tensor captured = random_tensor({2, 4}, 3);
  Tensor operator()(const Tensor& x) const {
    const Tensor hidden = tanh(matmul(x, w) + b) * captured;
    return reduce_sum(square(reshape(hidden, {4, 2})) * 0.5) + reduce_mean(exp(x));
  }
};

TEST(FunctionGradient, OfVariablesAndArgumentsEqualsTheEagerGradient) {
  const Parts parts;
  int traced = 0;
  const auto f = function([&](const Tensor& x) {
    ++traced;
    return parts(x);
  });
  for (std::uint32_t seed : {11u, 12u, 13u}) {
    const Tensor x = random_tensor({2, 3}, seed);
    const auto gradients = [&](const Unary& call) {
      GradientTape tape({.persistent = true});
      tape.watch(x);
      const Tensor y = call(x);
      auto found = tape.gradient(y, std::vector<Variable>{parts.w, parts.b});
      found.push_back(tape.gradient(y, x));
      found.push_back(y);
      return found;
    };
    const auto expected = gradients(parts), actual = gradients(f);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_close(actual[i], expected[i], 1e-12);
  }
  EXPECT_EQ(traced, 1);
  EXPECT_EQ(f.num_traces(), 1u);
}

TEST(FunctionGradient, BackwardAccumulatesInLeavesAndCallsTheirHooks) {
  const Parts parts;
  const auto f = function(parts);
  Tensor x = random_tensor({2, 3}, 4);
  x.set_requires_grad();
  std::vector<Variable> variables = {parts.w, parts.b};
  const auto run = [&](const Unary& call) {
    std::vector<Tensor> grads;
    call(x).backward();
    (call(x) * 2.0).backward();
    for (Variable& variable : variables) {
      grads.push_back(variable.grad());
      variable.zero_grad();
    }
    grads.push_back(x.grad());
    x.zero_grad();
    return grads;
  };
  const auto expected = run(parts);
  int calls = 0;
  parts.w.impl().leaf()->on_grad_ready.push_back([&](Leaf&) { ++calls; });
  const auto actual = run(f);
  for (std::size_t i = 0; i < expected.size(); ++i) expect_close(actual[i], expected[i], 1e-12);
  EXPECT_EQ(calls, 2);
}

TEST(FunctionGradient, GradientsComputedInsideAreOfTheRunsOnly) {
  Variable w(constant({2.0, 3.0}));
  const Tensor x = constant({1.0, 5.0});
  const Unary twice = [&](const Tensor& slope) {
    w.zero_grad();
    for (int i = 0; i < 2; ++i) reduce_sum(w.value() * slope).backward();
    return w.grad();
  };
  EXPECT_EQ(values_of(function(twice)(x)), std::vector<double>({2.0, 10.0}));
  EXPECT_FALSE(w.grad().defined());

  // A gradient from before is there again, and is nothing that runs accumulate into or read.
  reduce_sum(w.value() * 7.0).backward();
  EXPECT_EQ(values_of(function(twice)(x)), std::vector<double>({2.0, 10.0}));
  const Unary accumulates = [&](const Tensor& slope) {
    reduce_sum(w.value() * slope).backward();
    return w.grad();
  };
  const Unary reads = [&](const Tensor& factor) { return w.grad() * factor; };
  for (const Unary& use : {accumulates, reads})
    testing::expect_error<FailedPreconditionError>(
        [&] { function(use)(x); },
        "[grad] this gradient was computed outside of the function that uses it: compute it inside "
        "of it, or call zero_grad() inside of it first");
  EXPECT_EQ(values_of(w.grad()), std::vector<double>({7.0, 7.0}));
}

TEST(FunctionGradient, ACallIsRecordedAsOneOperation) {
  const Variable w(constant({2.0, 3.0}));
  const auto twice = function([](const Tensor& x) { return x * 2.0; });
  const auto scaled = function([&](const Tensor& x) { return square(x * w); });
  GradientTape tape;
  const Tensor x = constant({1.0, -1.0});
  tape.watch(x);
  const Tensor y = reduce_sum(twice(scaled(exp(twice(x)))));
  const Tensor gradient = tape.gradient(y, x);
  const auto values = [&](double at, double by) { return 8 * by * by * std::exp(4 * at); };
  testing::expect_tensor(gradient, float32, {2}, {values(1.0, 2.0), values(-1.0, 3.0)}, 1e-5);
}

TEST(FunctionGradient, CallsWithoutTrackedTensorsAreNotRecorded) {
  const Variable w(constant({2.0, 3.0}));
  const auto twice = function([](const Tensor& x) { return x * 2.0; });
  const auto scaled = function([&](const Tensor& x) { return x * w; });
  const Tensor x = constant({1.0, -1.0});
  EXPECT_FALSE(twice(x).requires_grad());
  EXPECT_TRUE(scaled(x).requires_grad());
  EXPECT_FALSE(x.requires_grad());
  const NoGradScope no_grad;
  EXPECT_FALSE(scaled(x).requires_grad());
}

TEST(FunctionGradient, DetachedTensorsHaveNoGradient) {
  const Variable w(constant(3.0));
  const auto f = function([&](const Tensor& x) {
    Tensor silent;
    {
      const NoGradScope no_grad;
      silent = square(w.value());
    }
    return x * w * (x * w).detach() * silent;
  });
  Tensor x = constant(2.0);
  x.set_requires_grad();
  f(x).backward();
  EXPECT_FLOAT_EQ(w.grad().item<float>(), 2.0f * 6.0f * 9.0f);
  EXPECT_FLOAT_EQ(x.grad().item<float>(), 3.0f * 6.0f * 9.0f);
}

TEST(FunctionGradient, UnusedOutputsContributeNothing) {
  const auto f =
      function([](const Tensor& x) { return std::tuple(square(x), log(x), x, x + 0.0); });
  const Tensor x = constant({0.0f, 2.0f});
  for (int round = 0; round < 2; ++round) {
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const auto [squares, logs, same, moved] = f(x);
    EXPECT_EQ(tape.gradient(squares, x).to_vector<float>(), (std::vector<float>{0, 4}));
    EXPECT_EQ(tape.gradient(same, x).to_vector<float>(), (std::vector<float>{1, 1}));
    EXPECT_EQ(tape.gradient(squares + moved, x).to_vector<float>(), (std::vector<float>{1, 5}));
    EXPECT_EQ(tape.gradient(logs, x).to_vector<float>()[1], 0.5f);
  }
  EXPECT_EQ(f.num_traces(), 1u);
}

TEST(FunctionGradient, OneResultHasNoGradientWithRespectToAnother) {
  const auto f = function([](const Tensor& x) {
    const Tensor hidden = x * 2.0;
    return std::pair(hidden, square(hidden));
  });
  const Tensor x = constant(3.0);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const auto [hidden, y] = f(x);
  EXPECT_FALSE(tape.gradient(y, hidden).defined());
  EXPECT_FLOAT_EQ(tape.gradient(y, x).item<float>(), 24.0f);
  EXPECT_FLOAT_EQ(tape.gradient(y + hidden, hidden).item<float>(), 1.0f);
}

TEST(FunctionGradient, ATensorMayBePassedAsSeveralArguments) {
  const auto f = function([](const Tensor& a, const Tensor& b) { return a * a * b; });
  const Tensor x = constant(3.0);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor first = tape.gradient(f(x, x), x);
  EXPECT_FLOAT_EQ(first.item<float>(), 27.0f);
  EXPECT_FLOAT_EQ(tape.gradient(first, x).item<float>(), 18.0f);
}

TEST(FunctionGradient, OfAGradient) {
  const auto cube = function([](const Tensor& x) { return x * x * x * x; });
  const Tensor x = constant(2.0);
  GradientTape outer;
  outer.watch(x);
  GradientTape middle;
  middle.watch(x);
  Tensor first;
  {
    GradientTape inner;
    inner.watch(x);
    first = inner.gradient(cube(x), x);
  }
  const Tensor second = middle.gradient(first, x);
  const Tensor third = outer.gradient(second, x);
  EXPECT_FLOAT_EQ(first.item<float>(), 32.0f);
  EXPECT_FLOAT_EQ(second.item<float>(), 48.0f);
  EXPECT_FLOAT_EQ(third.item<float>(), 48.0f);
}

TEST(FunctionGradient, OfAGradientEqualsTheEagerGradient) {
  const Parts parts;
  const auto f = function(parts);
  const auto penalty = [&](const Unary& call) {
    Tensor x = random_tensor({2, 3}, 5);
    x.set_requires_grad();
    call(x).backward({.create_graph = true});
    reduce_sum(square(x.grad())).backward();
    std::vector<Tensor> found;
    for (Variable variable : {parts.w, parts.b}) {
      found.push_back(variable.grad());
      variable.zero_grad();
    }
    found.push_back(x.grad());
    return found;
  };
  const auto expected = penalty(parts), actual = penalty(f);
  for (std::size_t i = 0; i < expected.size(); ++i) expect_close(actual[i], expected[i], 1e-12);
}

TEST(FunctionGradient, ComputedInsideAndAgainOutside) {
  const auto slope = function([](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    return tape.gradient(x * x * x, x);
  });
  const Tensor x = constant(2.0);
  EXPECT_FLOAT_EQ(slope(x).item<float>(), 12.0f);
  EXPECT_FALSE(slope(x).requires_grad());
  GradientTape tape;
  tape.watch(x);
  EXPECT_FLOAT_EQ(tape.gradient(slope(x), x).item<float>(), 12.0f);
}

TEST(FunctionGradient, AReplayedTrainingStepIsNotRecorded) {
  const Variable w(constant({1.0f, 2.0f}));
  optimizers::Optimizer optimizer = optimizers::SGD();
  const auto step = function([&](const Tensor& x) {
    const Tensor loss = reduce_sum(square(x * w));
    optimizer.minimize(loss, {w});
    return loss;
  });
  const Tensor loss = step(constant({1.0f, 1.0f}));
  EXPECT_FALSE(loss.requires_grad());
}

TEST(FunctionGradient, CapturedTensorsAreTrackedByEachTape) {
  const Tensor a = constant({1.0f, 2.0f}), b = constant({3.0f, 4.0f});
  const Variable frozen(constant({2.0f, 2.0f}), {.trainable = false});
  const auto f = function([&] { return reduce_sum(a * b * frozen); });
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(f().requires_grad());
    GradientTape tape({.persistent = true});
    const Tensor& watched = round == 1 ? b : a;
    tape.watch(watched);
    if (round == 2) tape.watch(frozen);
    const Tensor y = f();
    EXPECT_EQ(tape.gradient(y, a).defined(), round != 1);
    EXPECT_EQ(tape.gradient(y, b).defined(), round == 1);
    EXPECT_EQ(tape.gradient(y, watched).to_vector<float>(),
              round == 1 ? (std::vector<float>{2, 4}) : (std::vector<float>{6, 8}));
    const Tensor of_frozen = tape.gradient(y, frozen);
    ASSERT_EQ(of_frozen.defined(), round == 2);
    if (round == 2) {
      EXPECT_EQ(of_frozen.to_vector<float>(), (std::vector<float>{3, 8}));
    }
  }
}

TEST(FunctionGradient, SideEffectsHappenOnce) {
  Variable count(constant(0.0f), {.trainable = false});
  const Variable w(constant({1.0f, 2.0f}));
  const auto f = function([&](const Tensor& x) {
    const Tensor before = count.value();
    count.assign_add(constant(1.0f));
    return reduce_sum(x * w * before * count.value());
  });
  const auto gradient = [&] {
    GradientTape tape;
    return tape.gradient(f(constant({1.0f, 3.0f})), w).to_vector<float>();
  };
  EXPECT_EQ(gradient(), (std::vector<float>{0, 0}));
  EXPECT_EQ(gradient(), (std::vector<float>{2, 6}));
  EXPECT_EQ(gradient(), (std::vector<float>{6, 18}));
  EXPECT_EQ(count.value().item<float>(), 3.0f);
}

TEST(FunctionGradient, AssigningAfterTheCallDoesNotChangeIt) {
  Variable w(constant(2.0));
  const auto f = function([&](const Tensor& x) { return x * w * w; });
  GradientTape tape;
  const Tensor y = f(constant(1.0));
  w.assign(constant(100.0));
  EXPECT_FLOAT_EQ(tape.gradient(y, w).item<float>(), 4.0f);
  EXPECT_FLOAT_EQ(w.value().item<float>(), 100.0f);
}

TEST(FunctionGradient, BackwardUsesTheRandomNumbersOfTheCall) {
  const auto drop = function([](const Tensor& x) { return nn::dropout(x, 0.5) * 3.0; });
  Tensor x = ones({64});
  x.set_requires_grad();
  random::set_seed(8);
  std::vector<float> last;
  for (int round = 0; round < 3; ++round) {
    const Tensor y = drop(x);
    nn::dropout(ones({3}), 0.5);  // uses random numbers in between
    for (const bool again : {true, false}) {
      x.zero_grad();
      if (again) {
        reduce_sum(y).backward({.create_graph = true});
      } else {
        reduce_sum(y).backward();
      }
      EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());
    }
    EXPECT_NE(y.to_vector<float>(), last);
    last = y.to_vector<float>();
  }
  EXPECT_EQ(random::get_state().offset, 6u);
}

TEST(FunctionGradient, BackwardFreesTheSavedTensors) {
  const Variable w(constant({1.0f, 2.0f}));
  const auto f = function([&](const Tensor& x) { return reduce_sum(square(tanh(x * w))); });
  const Tensor x = constant({1.0f, 3.0f});
  const Tensor y = f(x);
  y.backward({.retain_graph = true});
  y.backward();
  testing::expect_error<RuntimeError>([&] { y.backward(); }, "a second time");
  expect_close(y, f(x));
}

TEST(FunctionGradient, SeveralCallsMayPrecedeTheirBackwardPasses) {
  Variable w(constant({1.0f, 2.0f}));
  const auto f = function([&](const Tensor& x) { return reduce_sum(square(exp(x * w))); });
  std::vector<Tensor> results, expected;
  GradientTape tape({.persistent = true});
  for (float at : {0.1f, 0.2f, 0.3f}) {
    const Tensor x = constant({at, -at});
    results.push_back(f(x));
    expected.push_back(reduce_sum(square(exp(x * w))));
  }
  for (int i : {1, 0, 2})
    expect_close(tape.gradient(results[static_cast<std::size_t>(i)], w),
                 tape.gradient(expected[static_cast<std::size_t>(i)], w));
}

TEST(FunctionGradient, OneTraceServesEverySize) {
  int traced = 0;
  const Variable w(random_tensor({3, 3}, 1));
  const auto forward = [&](const Tensor& x) {
    ++traced;
    const Tensor hidden = reshape(tanh(matmul(x, w)), {-1});
    return reduce_mean(square(hidden)) + reduce_sum(x * reduce_mean(x, {.axis = Dims{0}}));
  };
  const auto f = function(forward, {.input_signature = {{.shape = {-1, 3}, .dtype = float64}}});
  const auto gradients = [&](const Unary& call, const Tensor& x) {
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Tensor y = call(x);
    return std::vector<Tensor>{tape.gradient(y, w), tape.gradient(y, x)};
  };
  for (std::int64_t size : {2, 5, 1, 2}) {
    const Tensor x = random_tensor({size, 3}, static_cast<std::uint32_t>(size));
    const auto actual = gradients(f, x), expected = gradients(forward, x);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_close(actual[i], expected[i], 1e-12);
  }
  EXPECT_EQ(traced, 1 + 4);
  EXPECT_EQ(f.num_traces(), 1u);
}

TEST(FunctionGradient, RunsWhereTheVariablesAre) {
  testing::use_gpus(2);
  const DeviceScope scope("/gpu:1");
  const Variable w(constant({2.0f, 3.0f}));
  const auto f = function([&](const Tensor& x) { return reduce_sum(square(x * w)); });
  DeviceScope cpu("/cpu:0");
  Tensor x = constant({1.0f, -1.0f});
  x.set_requires_grad();
  for (int round = 1; round <= 2; ++round) {
    f(x).backward();
    EXPECT_EQ(w.grad().device(), w.device());
    EXPECT_EQ(x.grad().device(), x.device());
    const auto times = static_cast<float>(round);
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{4 * times, 6 * times}));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{8 * times, -18 * times}));
  }
}

}  // namespace
}  // namespace tandem::function_gradient_test
