// AMSGrad of optim::Adam and AdamW, which follow PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/tensors.h"
#include "tandem/optim.h"

namespace tandem::amsgrad_test {
namespace {

using namespace testing;

constexpr std::int64_t kSize = 5;
constexpr double kRate = 0.05, kBeta2 = 0.5, kDecay = 0.3;

std::vector<double> gradient_at(int step) {
  return random_values(kSize, 100 + static_cast<std::uint32_t>(step), -1.0, 1.0);
}
Variable variable_of(DType dtype) {
  return Variable(constant(random_values(kSize, 5, -1.0, 1.0), {.dtype = dtype}));
}
void step(optim::Optimizer optimizer, Variable variable, int number) {
  variable.set_grad(constant(gradient_at(number), {.dtype = variable.dtype()}));
  optimizer.step();
}

// torch.optim.Adam and, if `decoupled`, AdamW.
std::vector<double> expected(int steps, bool decoupled) {
  std::vector<double> w = random_values(kSize, 5, -1.0, 1.0), m(kSize), v(kSize), largest(kSize);
  for (int number = 1; number <= steps; ++number) {
    const std::vector<double> gradient = gradient_at(number);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + (decoupled ? 0.0 : kDecay * w[i]);
      if (decoupled) w[i] *= 1.0 - kRate * kDecay;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = kBeta2 * v[i] + (1.0 - kBeta2) * g * g;
      largest[i] = std::max(largest[i], v[i]);
      const double root = std::sqrt(largest[i]) / std::sqrt(1.0 - std::pow(kBeta2, number));
      w[i] -= kRate / (1.0 - std::pow(0.9, number)) * m[i] / (root + 1e-8);
    }
  }
  return w;
}

TEST(Amsgrad, FollowsPyTorch) {
  for (const auto& [dtype, tolerance] : {std::pair{float64, 1e-12}, std::pair{float32, 2e-6}})
    for (const bool decoupled : {false, true}) {
      SCOPED_TRACE(decoupled);
      const Variable w = variable_of(dtype);
      const optim::Optimizer optimizer =
          decoupled ? optim::Optimizer(optim::AdamW({w}, optim::AdamWOptions(kRate)
                                                             .betas({0.9, kBeta2})
                                                             .weight_decay(kDecay)
                                                             .amsgrad(true)))
                    : optim::Optimizer(optim::Adam({w}, {.lr = kRate,
                                                         .betas = {0.9, kBeta2},
                                                         .weight_decay = kDecay,
                                                         .amsgrad = true}));
      for (int number = 1; number <= 6; ++number) step(optimizer, w, number);
      expect_tensor(w, dtype, {kSize}, expected(6, decoupled), tolerance);
    }
}

TEST(Amsgrad, IsRestoredFromItsState) {
  Variable a = variable_of(float64), b = variable_of(float64);
  const optim::Adam first({a}, {.lr = 0.1, .amsgrad = true}),
      second({b}, {.lr = 0.1, .amsgrad = true}), plain({b}, {.lr = 0.1});
  for (int number = 1; number <= 3; ++number) step(first, a, number);
  EXPECT_TRUE(first.state_dict().contains("state.0.max_exp_avg_sq"));
  b.assign(a.value());
  second.load_state_dict(first.state_dict());
  step(first, a, 4);
  step(second, b, 4);
  EXPECT_EQ(values_of(a), values_of(b));
  expect_error<InvalidArgumentError>([&] { first.load_state_dict(plain.state_dict()); },
                                     "expected 'state.0.max_exp_avg_sq' in the state");
}

TEST(Amsgrad, IsOfAllGroups) {
  const Variable a = variable_of(float64), b = variable_of(float64);
  expect_error<UnimplementedError>(
      [&] {
        optim::Adam({{.params = {a}, .amsgrad = true}, {.params = {b}}});
      },
      "[adam] expected the same value of amsgrad in all groups");
  EXPECT_EQ(
      optim::Adam({{.params = {a}}, {.params = {b}}}, {.amsgrad = true}).param_groups().size(), 2u);
}

}  // namespace
}  // namespace tandem::amsgrad_test
