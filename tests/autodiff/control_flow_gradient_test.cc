// Gradients of branches and loops, eagerly and in traced functions.
#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::control_flow_gradient_test {
namespace {

using testing::expect_error;
using testing::random_tensor;
using testing::values_of;

using Tensors = std::vector<Tensor>;
using Fn = std::function<Tensor(const Tensors&)>;

Tensors gradients_of(const Fn& f, const Tensors& inputs) {
  GradientTape tape;
  for (const Tensor& input : inputs)
    if (is_floating(input.dtype())) tape.watch(input);
  const Tensor loss = reduce_sum(f(inputs));
  return tape.gradient(loss, inputs, {.unconnected_gradients = UnconnectedGradients::kZero});
}

// Compares eager gradients with finite differences, and traced gradients with eager ones.
void check(const Fn& f, const Tensors& inputs) {
  testing::expect_gradients(f, inputs);
  const auto traced = function([&](const Tensors& given) { return gradients_of(f, given); });
  for (int i = 0; i < 2; ++i) {  // the second run reuses the memory of the first
    const Tensors eager = gradients_of(f, inputs), replayed = traced(inputs);
    ASSERT_EQ(eager.size(), replayed.size());
    for (std::size_t k = 0; k < eager.size(); ++k)
      testing::expect_tensor(replayed[k], eager[k].dtype(), eager[k].shape(), values_of(eager[k]),
                             1e-12);
  }
}

Tensor scalar(double value) { return full({}, value, {.dtype = float64}); }

TEST(ControlFlowGradient, GoesThroughTheTakenBranch) {
  const Fn f = [](const Tensors& v) {
    const Tensor y = v[0] * v[1];
    return cond(
               greater(reduce_sum(v[0]), 0.0), [&] { return square(y) * v[0]; },
               [&] { return tanh(y) + v[2]; }) *
           v[1];
  };
  check(f, {random_tensor({3}, 1, 0.5, 2.0), random_tensor({3}, 2), random_tensor({3}, 3)});
  check(f, {random_tensor({3}, 1, -2.0, -0.5), random_tensor({3}, 2), random_tensor({3}, 3)});
}

TEST(ControlFlowGradient, ASharedInputIsCountedOnce) {
  // Both x and a tensor computed from it are captured.
  const Fn f = [](const Tensors& v) {
    const Tensor y = square(v[0]);
    return cond(
        less(reduce_sum(v[0]), 1e9), [&] { return y * v[0] + y.detach() * v[0]; },
        [&] { return y; });
  };
  const Tensors x = {random_tensor({2}, 5)};
  const auto traced = function([&](const Tensors& given) { return gradients_of(f, given); });
  testing::expect_tensor(traced(x)[0], float64, {2}, values_of(gradients_of(f, x)[0]), 1e-12);
}

TEST(ControlFlowGradient, GoesThroughEveryIteration) {
  const Fn f = [](const Tensors& v) {
    const Tensors last = while_loop(
        [](const Tensors& w) { return less(w[0], 4); },
        [&](const Tensors& w) {
          return Tensors{w[0] + ones({}, {.dtype = int32}), tanh(w[1] * v[1]) + v[0], w[2] + w[1]};
        },
        {zeros({}, {.dtype = int32}), v[0], zeros_like(v[0])});
    return last[1] * last[2];
  };
  check(f, {random_tensor({2, 2}, 1), random_tensor({2, 2}, 2)});
}

TEST(ControlFlowGradient, TheNumberOfIterationsMayDiffer) {
  const auto f = [](const Tensor& x, const Tensor& n) {
    return reduce_sum(while_loop([&](const Tensors& w) { return less(w[0], n); },
                                 [&](const Tensors& w) {
                                   return Tensors{w[0] + scalar(1.0), sin(w[1]) * x};
                                 },
                                 {scalar(0.0), x})[1]);
  };
  const auto gradient = [&](const Tensor& x, const Tensor& n) {
    GradientTape tape;
    tape.watch(x);
    return tape.gradient(f(x, n), x);
  };
  const auto traced = function(gradient);
  const Tensor x = random_tensor({3}, 4);
  for (double n : {3.0, 0.0, 6.0, 1.0, 2.0})
    testing::expect_tensor(traced(x, scalar(n)), float64, {3}, values_of(gradient(x, scalar(n))),
                           1e-12);
}

TEST(ControlFlowGradient, GoesThroughNestedControlFlow) {
  const Fn f = [](const Tensors& v) {
    return while_loop([](const Tensors& w) { return less(w[0], 3.0); },
                      [&](const Tensors& w) {
                        const Tensors inner = while_loop(
                            [&](const Tensors& u) { return less_equal(u[0], w[0]); },
                            [&](const Tensors& u) {
                              const Tensor next = cond(
                                  greater(reduce_sum(u[1]), 0.5), [&] { return sin(u[1]) * v[1]; },
                                  [&] { return u[1] + v[0] * w[1]; });
                              return Tensors{u[0] + scalar(1.0), next};
                            },
                            {scalar(0.0), w[1]});
                        return Tensors{w[0] + scalar(1.0), inner[1] + v[0]};
                      },
                      {scalar(0.0), v[0] * v[1]})[1];
  };
  check(f, {random_tensor({3}, 7), random_tensor({3}, 8)});
}

TEST(ControlFlowGradient, VariablesAreSources) {
  const Variable w(random_tensor({3}, 1)), b(random_tensor({3}, 2)), unused(random_tensor({3}, 3));
  const auto loss = [&](const Tensor& x, const Tensor& p) {
    const Tensor y = cond(
        p, [&] { return x * w + b; }, [&] { return x * b; });
    return reduce_sum(while_loop([](const Tensors& v) { return less(v[0], 3.0); },
                                 [&](const Tensors& v) {
                                   return Tensors{v[0] + scalar(1.0), tanh(v[1] * w)};
                                 },
                                 {scalar(0.0), y})[1] *
                      w);
  };
  const auto gradients = [&](const Tensor& x, const Tensor& p) {
    GradientTape tape;
    return tape.gradient(loss(x, p), std::vector<Variable>{w, b, unused});
  };
  const auto traced = function(gradients);
  const Tensor x = random_tensor({3}, 4);
  for (bool p : {true, false, true}) {
    const Tensors eager = gradients(x, constant(p)), replayed = traced(x, constant(p));
    for (int i = 0; i < 2; ++i)
      testing::expect_tensor(replayed[i], float64, {3}, values_of(eager[i]), 1e-12);
    EXPECT_FALSE(eager[2].defined());
    EXPECT_FALSE(replayed[2].defined());
  }
}

TEST(ControlFlowGradient, BackwardGeneratesTheSameRandomNumbers) {
  const auto run = [](const Tensor& x, const Tensor& n) {
    GradientTape tape;
    tape.watch(x);
    const Tensors last =
        while_loop([&](const Tensors& v) { return less(v[0], n); },
                   [&](const Tensors& v) {
                     const Tensor dropped = nn::dropout(v[1] * x, 0.4);
                     const Tensor next = cond(
                         greater(reduce_sum(dropped), 1.0),
                         [&] { return nn::dropout(dropped, 0.2); }, [&] { return dropped; });
                     return Tensors{v[0] + scalar(1.0), nn::dropout(next + x, 0.3)};
                   },
                   {scalar(0.0), x});
    const Tensor loss = reduce_sum(last[1]);
    return std::pair(loss, tape.gradient(loss, x));
  };
  const auto traced = function(run);
  const Tensor x = random_tensor({16}, 9, 0.5, 1.5);
  for (double n : {4.0, 1.0, 5.0}) {
    random::set_seed(21);
    const auto [loss, gradient] = run(x, scalar(n));
    random::set_seed(21);
    const auto [traced_loss, traced_gradient] = traced(x, scalar(n));
    testing::expect_tensor(traced_loss, float64, Shape::scalar(), values_of(loss), 1e-12);
    testing::expect_tensor(traced_gradient, float64, {16}, values_of(gradient), 1e-12);
  }
}

TEST(ControlFlowGradient, BatchNormalisationInABranchHasGradients) {
  const auto run = [](bool traced) {
    random::set_seed(2);
    Sequential model({layers::Dense(4, {.activation = "relu", .input_shape = {3}}),
                      layers::BatchNormalization(), layers::Dense(1)});
    const auto step = [&](const Tensor& x, const Tensor& p) {
      GradientTape tape;
      const Tensor y = cond(
          p, [&] { return model(x, {.training = true}); }, [&] { return model(x); });
      Tensors all = tape.gradient(reduce_sum(square(y)), model.trainable_variables());
      for (const Variable& variable : model.variables()) all.push_back(variable.value());
      return all;
    };
    const auto replayed = function(step);
    std::vector<double> values;
    for (bool training : {true, false, true, false}) {
      const Tensor x = random::normal({5, 3}), p = constant(training);
      for (const Tensor& tensor : traced ? replayed(x, p) : step(x, p))
        for (double value : values_of(tensor)) values.push_back(value);
    }
    return values;
  };
  const std::vector<double> eager = run(false), traced = run(true);
  ASSERT_EQ(eager.size(), traced.size());
  for (std::size_t i = 0; i < eager.size(); ++i)
    EXPECT_NEAR(traced[i], eager[i], 1e-5 * std::max(1.0, std::abs(eager[i])));
}

TEST(ControlFlowGradient, OneTraceServesEverySizeOfItsSignature) {
  const auto run = [](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = while_loop([](const Tensors& v) { return less(v[0], 3.0); },
                                [&](const Tensors& v) {
                                  return Tensors{v[0] + scalar(1.0),
                                                 cond(
                                                     greater(v[0], 0.5), [&] { return v[1] * x; },
                                                     [&] { return sin(v[1]); })};
                                },
                                {scalar(0.0), x})[1];
    return tape.gradient(y, x);
  };
  const auto traced = function(run, {.input_signature = {{.shape = {-1, 2}, .dtype = float64}}});
  for (std::int64_t size : {1, 3, 2}) {
    const Tensor x = random_tensor({size, 2}, 3);
    testing::expect_tensor(traced(x), float64, {size, 2}, values_of(run(x)), 1e-12);
  }
  EXPECT_EQ(traced.num_traces(), 1u);
}

TEST(ControlFlowGradient, ComputedInsideABody) {
  // Newton's method: the gradient is part of each iteration.
  const auto run = [](const Tensor& start) {
    return while_loop([](const Tensors& v) { return less(v[0], 12.0); },
                      [](const Tensors& v) {
                        const Tensor x = v[1].detach();
                        GradientTape tape;
                        tape.watch(x);
                        const Tensor y = square(x) - scalar(2.0);
                        return Tensors{v[0] + scalar(1.0), x - y / tape.gradient(y, x)};
                      },
                      {scalar(0.0), start})[1];
  };
  EXPECT_NEAR(function(run)(scalar(1.0)).item<double>(), std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(run(scalar(3.0)).item<double>(), std::sqrt(2.0), 1e-12);
}

TEST(ControlFlowGradient, ComputedInsideABodyOfAnOuterTensor) {
  const auto run = [](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = x * x * x;
    return cond(
        greater(x, 0.0), [&] { return tape.gradient(y, x) * x; }, [&] { return y; });
  };
  const auto traced = function(run);
  EXPECT_EQ(traced(scalar(2.0)).item<double>(), 24.0);
  EXPECT_EQ(traced(scalar(-2.0)).item<double>(), -8.0);
}

TEST(ControlFlowGradient, UnsupportedGradientsThrow) {
  Variable v(scalar(2.0), {.name = "v"});
  const auto written = function([&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = cond(
        greater(x, 0.0),
        [&] {
          const Tensor read = x * v.value().detach();
          v.assign(x);
          return read;
        },
        [&] { return x; });
    return tape.gradient(y, x);
  });
  expect_error<UnimplementedError>([&] { written(scalar(1.0)); },
                                   "depends on a variable that the callables also write");
  const auto to_variable = function([&](const Tensor& x) {
    GradientTape tape;
    const Tensor y = cond(
        greater(x, 0.0),
        [&] {
          v.assign_add(x);
          return x * v;
        },
        [&] { return x * v; });
    return tape.gradient(y, v);
  });
  expect_error<UnimplementedError>([&] { to_variable(scalar(1.0)); },
                                   "with respect to a variable that the callables also write");
  const auto inside = function([&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = cond(
        greater(x, 0.0), [&] { return x * x; }, [&] { return x; });
    return cond(
        less(x, 9.0), [&] { return tape.gradient(y, x); }, [&] { return x; });
  });
  expect_error<UnimplementedError>([&] { inside(scalar(1.0)); }, "is taken in the same graph");
  const auto second = function([&](const Tensor& x) {
    GradientTape outer;
    outer.watch(x);
    GradientTape inner;
    inner.watch(x);
    const Tensor y = cond(
        greater(x, 0.0), [&] { return x * x * x; }, [&] { return x; });
    return outer.gradient(inner.gradient(y, x), x);
  });
  expect_error<UnimplementedError>([&] { second(scalar(1.0)); }, "gradients of the gradients");
}

}  // namespace
}  // namespace tandem::control_flow_gradient_test
