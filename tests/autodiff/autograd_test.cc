// Gradient functions of users, hooks, grad() as a function, and PyTorch's loop with raw gradients.
#include "tandem/autograd.h"

#include <gtest/gtest.h>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::autograd_test {
namespace {

using namespace testing;

struct Cube : autograd::Function<Cube> {
  static Tensor forward(autograd::Context* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static std::vector<Tensor> backward(autograd::Context* context,
                                      const std::vector<Tensor>& gradients) {
    return {3.0 * context->saved_tensors()[0].square() * gradients[0]};
  }
};

// exp(x), from its result, times a number.
struct ScaledExp : autograd::Function<ScaledExp> {
  static Tensor forward(autograd::Context* context, const Tensor& x, double factor) {
    Tensor y = exp(x) * factor;
    context->save_for_backward({y});
    return y;
  }
  static std::vector<Tensor> backward(autograd::Context* context,
                                      const std::vector<Tensor>& gradients) {
    return {context->saved_tensors()[0] * gradients[0], Tensor()};
  }
};

// Two results of two arguments.
struct SumAndProduct : autograd::Function<SumAndProduct> {
  static std::vector<Tensor> forward(autograd::Context* context, const Tensor& a, const Tensor& b) {
    context->save_for_backward({a, b});
    return {a + b, a * b};
  }
  static std::vector<Tensor> backward(autograd::Context* context, const std::vector<Tensor>& g) {
    const auto& saved = context->saved_tensors();
    Tensor da, db;
    if (context->needs_input_grad(0)) da = g[0] + g[1] * saved[1];
    if (context->needs_input_grad(1)) db = g[0] + g[1] * saved[0];
    return {da, db};
  }
};

// The same as Cube with a reference to the context, and with one tensor as the gradient.
struct CubeByReference : autograd::Function<CubeByReference> {
  static Tensor forward(autograd::Context& context, const Tensor& x) {
    context.save_for_backward({x});
    return x * x * x;
  }
  static std::vector<Tensor> backward(autograd::Context& context,
                                      const std::vector<Tensor>& gradients) {
    return {3.0 * context.saved_tensors()[0].square() * gradients[0]};
  }
};
struct CubeOfOneGradient : autograd::Function<CubeOfOneGradient> {
  static Tensor forward(autograd::Context& context, const Tensor& x) {
    return CubeByReference::forward(context, x);
  }
  static Tensor backward(autograd::Context& context, const std::vector<Tensor>& gradients) {
    return CubeByReference::backward(context, gradients)[0];
  }
};

TEST(Function, TakesAReferenceToTheContext) {
  expect_gradients([](const std::vector<Tensor>& in) { return CubeByReference::apply(in[0]); },
                   {random_tensor({3})});
  expect_gradients([](const std::vector<Tensor>& in) { return CubeOfOneGradient::apply(in[0]); },
                   {random_tensor({3})});
}

TEST(Function, HasTheGradientOfItsBackward) {
  expect_gradients([](const std::vector<Tensor>& in) { return Cube::apply(in[0]); },
                   {random_tensor({3})});
  expect_gradients([](const std::vector<Tensor>& in) { return ScaledExp::apply(in[0], 2.5); },
                   {random_tensor({3})});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        const auto both = SumAndProduct::apply(in[0], in[1]);
        return both[0] * 2.0 + both[1];
      },
      {random_tensor({3}, 1), random_tensor({3}, 2)});
  expect_gradients(
      [](const std::vector<Tensor>& in) { return SumAndProduct::apply(in[0], in[1])[1]; },
      {random_tensor({3}, 1), random_tensor({3}, 2)});
}

TEST(Function, IsTracedWithItsGradient) {
  const Variable w(random_tensor({3}));
  const auto gradient_of = [&] {
    GradientTape tape;
    const Tensor y = reduce_sum(Cube::apply(w) + ScaledExp::apply(w, 0.5));
    return tape.gradient(y, w);
  };
  const auto traced = function(gradient_of);
  EXPECT_EQ(values_of(traced()), values_of(gradient_of()));
  // From outside, the record of the call has the same gradient.
  const auto forward = function([&] { return Cube::apply(w); });
  GradientTape tape;
  const Tensor y = reduce_sum(forward());
  const Tensor expected = 3.0 * w.value().square();
  EXPECT_TRUE(allclose(tape.gradient(y, w), expected));
}

TEST(Function, KeepsNothingWithoutGradients) {
  EXPECT_FALSE(Cube::apply(ones({2})).requires_grad());
  Tensor x = ones({2}, {.requires_grad = true});
  const NoGradScope none;
  EXPECT_FALSE(Cube::apply(x).requires_grad());
}

struct TooFew : autograd::Function<TooFew> {
  static Tensor forward(autograd::Context*, const Tensor& a, const Tensor& b) { return a + b; }
  static std::vector<Tensor> backward(autograd::Context*, const std::vector<Tensor>& g) {
    return {g[0]};
  }
};
struct OfAnotherShape : autograd::Function<OfAnotherShape> {
  static Tensor forward(autograd::Context*, const Tensor& a) { return a * 2.0; }
  static std::vector<Tensor> backward(autograd::Context*, const std::vector<Tensor>& g) {
    return {g[0].sum()};
  }
};

struct OfNothing : autograd::Function<OfNothing> {
  static std::vector<Tensor> forward(autograd::Context*, const Tensor&) { return {}; }
  static std::vector<Tensor> backward(autograd::Context*, const std::vector<Tensor>&) { return {}; }
};

TEST(Function, RefusesToReturnNothing) {
  const Tensor x = ones({2}, {.requires_grad = true});
  expect_error<InvalidArgumentError>([&] { OfNothing::apply(x); },
                                     "[Function] expected forward() to return tensors, got none");
}

TEST(Function, RefusesGradientsThatDoNotFit) {
  Tensor x = ones({2}, {.requires_grad = true});
  expect_error<InvalidArgumentError>([&] { TooFew::apply(x, x).sum().backward(); },
                                     "for each of 2 arguments, got 1");
  expect_error<InvalidArgumentError>([&] { OfAnotherShape::apply(x).sum().backward(); },
                                     "[Function] expected a gradient of shape (2,)");
}

TEST(Grad, ReturnsGradientsAndChangesNone) {
  Tensor x = constant({1.0, 2.0}, {.dtype = float64, .requires_grad = true});
  const Tensor y = (x * x * x).sum();
  const Tensor g = autograd::grad({y}, {x}, {.create_graph = true})[0];
  expect_tensor(g, float64, {2}, {3, 12});
  EXPECT_FALSE(x.grad().defined());
  expect_tensor(autograd::grad({g.sum()}, {x})[0], float64, {2}, {6, 12});
  const Tensor z = x * 2.0;
  expect_tensor(
      autograd::grad({z}, {x}, {.grad_outputs = {constant({1.0, 5.0}, {.dtype = float64})}})[0],
      float64, {2}, {2, 10});
  Tensor other = ones({1}, {.requires_grad = true});
  expect_error<ShapeError>([&] { autograd::grad({x * 2.0}, {x}); },
                           "[grad] expected a scalar output or grad_outputs");
  expect_error<InvalidArgumentError>([&] { autograd::grad({(x * 2.0).sum()}, {other}); },
                                     "but not on input 0");
  EXPECT_FALSE(autograd::grad({(x * 2.0).sum()}, {other}, {.allow_unused = true})[0].defined());
}

TEST(Hooks, SeeAndReplaceGradients) {
  Tensor x = constant({1.0, 2.0}, {.requires_grad = true});
  std::vector<double> seen;
  x.register_hook([&](const Tensor& g) { seen = values_of(g); });
  (x * 3.0).sum().backward();
  EXPECT_EQ(seen, (std::vector<double>{3, 3}));
  x.register_hook([](const Tensor& g) { return g * 2.0; });
  x.zero_grad();
  (x * 3.0).sum().backward();
  EXPECT_EQ(values_of(x.grad()), (std::vector<double>{6, 6}));

  Tensor w = constant({1.0, 2.0}, {.requires_grad = true});
  const Tensor middle = w * 2.0;
  middle.register_hook([](const Tensor& g) { return g * 10.0; });
  middle.sum().backward();
  EXPECT_EQ(values_of(w.grad()), (std::vector<double>{20, 20}));

  const Tensor bad = w * 1.0;
  bad.register_hook([](const Tensor& g) { return g.sum(); });
  expect_error<InvalidArgumentError>(
      [&] { bad.sum().backward(); },
      "[register_hook] expected a hook to return a gradient of shape (2,)");
  expect_error<InvalidArgumentError>([] { ones({2}).register_hook([](const Tensor&) {}); },
                                     "[register_hook] expected a tensor that requires a gradient");
}

TEST(RawGradients, AreSetToZeroInPlaceAndLeavesStayLeaves) {
  Tensor w = zeros({2}, {.requires_grad = true}), b = zeros({2}).requires_grad_();
  for (int i = 1; i <= 3; ++i) {
    ((w - 1.0).square() + (b - 2.0).square()).sum().backward();
    const Tensor kept = w.grad() * 1.0;
    {
      const NoGradGuard none;
      w -= 0.25 * w.grad();
      b -= 0.25 * b.grad();
      w.grad().zero_();
      b.grad().zero_();
    }
    EXPECT_TRUE(w.requires_grad());
    EXPECT_TRUE(w.is_leaf());
    expect_tensor(w.grad(), float32, {2}, {0, 0});
    EXPECT_NE(values_of(kept)[0], 0.0);
    expect_tensor(w, float32, {2}, {1 - std::pow(0.5, i), 1 - std::pow(0.5, i)});
    expect_tensor(b, float32, {2}, {2 - std::pow(0.5, i - 1), 2 - std::pow(0.5, i - 1)});
  }
}

TEST(RawGradients, ThatTwoLeavesShareAreSetToZeroOneByOne) {
  Tensor a = ones({2}, {.requires_grad = true}), b = ones({2}, {.requires_grad = true});
  (a + b).sum().backward();
  a.grad().zero_();
  expect_tensor(a.grad(), float32, {2}, {0, 0});
  expect_tensor(b.grad(), float32, {2}, {1, 1});
  const Variable v(ones({2}));
  (v * 2.0).sum().backward();
  v.grad().zero_();
  expect_tensor(v.grad(), float32, {2}, {0, 0});
  expect_error<FailedPreconditionError>([&] { a[0].zero_(); },
                                        "[zero_] expected a tensor that grad() has returned");
}

}  // namespace
}  // namespace tandem::autograd_test
