// custom_gradient(), jacobians, gradcheck(), and what own functions and hooks keep.
#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::own_gradient_test {
namespace {

using namespace testing;

// log(1 + e^x), whose gradient is stable.
Tensor log1pexp(const Tensor& x) {
  static const auto f = custom_gradient([](const Tensor& at) {
    const Tensor e = exp(at);
    const auto gradient = [e](const Tensor& upstream) {
      return upstream * (1.0 - 1.0 / (1.0 + e));
    };
    return std::make_pair(log(1.0 + e), gradient);
  });
  return f(x);
}

TEST(CustomGradient, IsTheOneThatIsGiven) {
  expect_gradients([](const std::vector<Tensor>& in) { return log1pexp(in[0]); },
                   {random_tensor({4})});
  const Tensor x = constant({100.0}, {.dtype = float64});
  GradientTape tape;
  tape.watch(x);
  expect_tensor(tape.gradient(log1pexp(x * 8.0), x), float64, {1}, {8});
  // Another gradient than the function's.
  const auto doubled = custom_gradient([](const Tensor& at) {
    return std::make_tuple(at * 1.0, [](const Tensor& upstream) { return upstream * 2.0; });
  });
  Tensor leaf = constant({1.0, 2.0}, {.requires_grad = true});
  reduce_sum(doubled(leaf) * 3.0).backward();
  expect_tensor(leaf.grad(), float32, {2}, {6, 6});
}

TEST(CustomGradient, HasDerivativesOfHigherOrder) {
  expect_second_order([](const std::vector<Tensor>& in) { return log1pexp(in[0]); },
                      {random_tensor({4})});
}

TEST(CustomGradient, TakesSeveralArgumentsAndVariables) {
  const auto product = custom_gradient([](const Tensor& a, const Tensor& b) {
    return std::make_pair(a * b, [a, b](const Tensor& upstream) {
      return std::vector<Tensor>{upstream * b, upstream * a};
    });
  });
  expect_gradients([&](const std::vector<Tensor>& in) { return product(in[0], in[1]); },
                   {random_tensor({3}, 1), random_tensor({3}, 2)});
  const Variable w(constant({3.0}));
  GradientTape tape;
  expect_tensor(tape.gradient(product(w, constant({5.0})), w), float32, {1}, {5});
}

TEST(CustomGradient, IsTraced) {
  const Variable w(random_tensor({3}));
  const auto gradient_of = [&] {
    GradientTape tape;
    return tape.gradient(reduce_sum(square(log1pexp(w))), w);
  };
  EXPECT_EQ(values_of(function(gradient_of)()), values_of(gradient_of()));
  // From outside, the record of the call has the same gradient.
  const auto forward = function([&] { return log1pexp(w); });
  GradientTape tape;
  const Tensor y = reduce_sum(forward());
  expect_tensor(tape.gradient(y, w), float64, {3}, values_of(sigmoid(w.value())), 1e-12);
}

TEST(CustomGradient, RefusesVariablesThatAreNoArguments) {
  const Variable w(constant({3.0}));
  const auto captures = custom_gradient([&](const Tensor& x) {
    return std::make_pair(x * w, [](const Tensor& upstream) { return upstream; });
  });
  const Tensor x = constant({2.0});
  expect_error<UnimplementedError>([&] { captures(x); }, "[custom_gradient] the function uses");
  GradientTape tape;
  tape.watch(x);
  expect_error<UnimplementedError>([&] { captures(x * 2.0); }, "pass it as one");
  const NoGradScope none;
  expect_tensor(captures(x), float32, {1}, {6});
}

TEST(CustomGradient, RefusesAnotherNumberOfGradients) {
  const auto wrong = custom_gradient([](const Tensor& a, const Tensor& b) {
    return std::make_pair(a * b, [](const Tensor& upstream) { return upstream; });
  });
  Tensor a = ones({2}, {.requires_grad = true});
  const Tensor y = reduce_sum(wrong(a, ones({2})));
  expect_error<InvalidArgumentError>([&] { y.backward(); },
                                     "a gradient for each of 2 arguments, got 1");
}

TEST(Jacobian, HasARowPerElement) {
  const Tensor x = constant({1.0, 2.0, 3.0}, {.dtype = float64});
  const Tensor m = random_tensor({2, 3});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = square(matmul(m, x));
  const Tensor expected = expand_dims(2.0 * matmul(m, x), 1) * m;
  expect_tensor(tape.jacobian(y, x), float64, {2, 3}, values_of(expected), 1e-12);
  expect_error<RuntimeError>([&] { tape.jacobian(y, x); }, "A non-persistent GradientTape");
}

TEST(Jacobian, OfVariablesAndShapes) {
  const Variable v(constant({{1.0, 2.0}, {3.0, 4.0}}));
  GradientTape tape({.persistent = true});
  const Tensor y = reduce_sum(v * v, 1);
  expect_tensor(tape.jacobian(y, v), float32, {2, 2, 2}, {2, 4, 0, 0, 0, 0, 6, 8});
  EXPECT_FALSE(tape.jacobian(y, constant({1.0})).defined());
  const Variable frozen(constant({1.0}), {.trainable = false});
  EXPECT_FALSE(tape.jacobian(y * frozen, frozen).defined());
}

TEST(Jacobian, HasGradients) {
  const Tensor x = random_tensor({3});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        GradientTape tape({.persistent = true});
        tape.watch(in[0]);
        return tape.jacobian(in[0] * in[0] * in[0], in[0]);
      },
      {x});
}

TEST(Jacobian, IsTraced) {
  const auto of = [](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    return tape.jacobian(tanh(x), x);
  };
  const Tensor x = random_tensor({3});
  EXPECT_EQ(values_of(function(of)(x)), values_of(of(x)));
  const auto any_size = function(of, {.input_signature = {{.shape = {-1}, .dtype = float64}}});
  expect_error<ShapeError>([&] { any_size(x); }, "expected a target of a known shape");
}

TEST(Functional, JacobianAndHessian) {
  using namespace autograd::functional;
  const Tensor x = constant({1.0, 2.0}, {.dtype = float64});
  expect_tensor(jacobian([](const Tensor& v) { return pow(v, 3.0); }, x), float64, {2, 2},
                {3, 0, 0, 12}, 1e-12);
  expect_tensor(jacobian([](const Tensor& v) { return zeros_like(v); }, x), float64, {2, 2},
                {0, 0, 0, 0});
  // x0^3 x1
  const auto f = [](const Tensor& v) { return pow(v, 3.0)[0] * v[1]; };
  expect_tensor(hessian(f, x), float64, {2, 2}, {12, 3, 3, 0}, 1e-12);
  expect_error<ShapeError>([&] { hessian([](const Tensor& v) { return v * v; }, x); },
                           "[hessian] expected a function whose result is a scalar");
}

TEST(GradCheck, FindsAGradientThatIsWrong) {
  using autograd::gradcheck;
  const Tensor x = random_tensor({3});
  EXPECT_TRUE(gradcheck([](const Tensor& v) { return tanh(v) * v; }, x));
  EXPECT_TRUE(gradcheck([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); },
                        {random_tensor({2, 3}, 1), random_tensor({3, 2}, 2)}));
  const auto wrong = custom_gradient([](const Tensor& v) {
    return std::make_pair(v * v, [](const Tensor& upstream) { return upstream; });
  });
  const auto f = [&](const Tensor& v) { return wrong(v); };
  expect_error<FailedPreconditionError>([&] { gradcheck(f, x); },
                                        "[gradcheck] the derivative of element 0 of the result");
  EXPECT_FALSE(gradcheck(f, x, {.raise_exception = false}));
  expect_error<DTypeError>([&] { gradcheck(f, ones({2})); }, "expected inputs of float64");
}

struct LeakyClamp : autograd::Function<LeakyClamp> {
  static Tensor forward(autograd::AutogradContext* ctx, Tensor x, double slope) {
    ctx->save_for_backward({x});
    ctx->saved_data["slope"] = slope;
    ctx->saved_data["count"] = 3;
    return where(x > 0.0, x, x * slope);
  }
  static autograd::variable_list backward(autograd::AutogradContext* ctx,
                                          autograd::variable_list gradients) {
    EXPECT_EQ(ctx->saved_data["count"].toInt(), 3);
    expect_error<InvalidArgumentError>([&] { ctx->saved_data["count"].toDouble(); },
                                       "[saved_data] the value is not a floating-point number");
    const double slope = ctx->saved_data["slope"].toDouble();
    const Tensor x = ctx->get_saved_variables()[0], g = gradients[0];
    return {where(x > 0.0, g, g * slope), Tensor()};
  }
};

TEST(SavedData, IsThereInBackward) {
  expect_gradients([](const std::vector<Tensor>& in) { return LeakyClamp::apply(in[0], 0.1); },
                   {constant({-1.0, 2.0}, {.dtype = float64})});
}

TEST(Grad, TakesItsOptionsAsArguments) {
  const Tensor x = constant({2.0}, {.requires_grad = true});
  const Tensor y = reduce_sum(x * x * x);
  const auto first = autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  expect_tensor(first[0], float32, {1}, {12});
  const std::vector<Tensor> upstream = {ones({1})};
  expect_tensor(autograd::grad({first[0]}, {x}, upstream)[0], float32, {1}, {12});
}

TEST(Hooks, AreRemoved) {
  const Tensor x = constant({1.0}, {.requires_grad = true});
  RemovableHandle hook = x.register_hook([](const Tensor& g) { return g * 2.0; });
  expect_tensor(autograd::grad({reduce_sum(x * 3.0)}, {x})[0], float32, {1}, {6});
  hook.remove();
  hook.remove();
  expect_tensor(autograd::grad({reduce_sum(x * 3.0)}, {x})[0], float32, {1}, {3});
}

}  // namespace
}  // namespace tandem::own_gradient_test
