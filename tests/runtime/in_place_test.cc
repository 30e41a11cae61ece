#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "ops/math/binary.h"
#include "runtime/dispatch.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::in_place_test {
namespace {

Tensor add_over(Tensor first, const Tensor& second) {
  return run_in_place(kAddN, std::move(first), {&second}, NoAttrs());
}

TEST(InPlace, ReusesTheMemoryOfAMovedInput) {
  testing::use_gpus(0);
  Tensor x = constant({1.0f, 2.0f});
  const float* memory = x.data<float>();
  const Tensor y = add_over(std::move(x), constant({10.0f, 20.0f}));
  EXPECT_EQ(y.data<float>(), memory);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{11, 22}));
}

TEST(InPlace, DoesNotReuseMemoryThatIsReferencedElsewhere) {
  const Tensor ten = constant({10.0f, 20.0f});
  const Tensor kept = constant({1.0f, 2.0f});
  EXPECT_EQ(add_over(kept, ten).to_vector<float>(), (std::vector<float>{11, 22}));
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{1, 2}));

  Tensor base = constant({1.0f, 2.0f});
  const Tensor view = reshape(base, {2, 1});
  EXPECT_EQ(add_over(std::move(base), ten).to_vector<float>(), (std::vector<float>{11, 22}));
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(InPlace, DoesNotReuseMemoryThatAGradientReads) {
  const Variable w(constant({1.0f, 2.0f}));
  const Tensor ones = constant({1.0f, 1.0f});
  Tensor power = add_over(w * 1.0, ones);
  // Pow saves its input.
  const Tensor y = run_in_place(kPow, power + 0.0, {&power}, NoAttrs());
  y.backward(ones);
  EXPECT_NEAR(w.grad().to_vector<float>()[0], 4.0 * (1.0 + std::log(2.0)), 1e-4);
}

}  // namespace
}  // namespace tandem::in_place_test
