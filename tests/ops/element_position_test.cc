// The result for an element does not depend on where the element is in the tensor: in the body or
// the end of a vectorised loop, in which thread's part, or alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::element_position_test {
namespace {

using testing::random_tensor;
using testing::values_of;

using Function = std::function<Tensor(const Tensor&, const Tensor&)>;

std::vector<std::pair<const char*, Function>> functions() {
  using T = const Tensor&;
  return {{"exp", [](T x, T) { return exp(x); }},
          {"expm1", [](T x, T) { return expm1(x); }},
          {"log", [](T x, T) { return log(x); }},
          {"log1p", [](T x, T) { return log1p(x); }},
          {"sin", [](T x, T) { return sin(x); }},
          {"cos", [](T x, T) { return cos(x); }},
          {"tanh", [](T x, T) { return tanh(x); }},
          {"sigmoid", [](T x, T) { return sigmoid(x); }},
          {"erf", [](T x, T) { return erf(x); }},
          {"rsqrt", [](T x, T) { return rsqrt(x); }},
          {"elu", [](T x, T) { return nn::elu(x, 0.7); }},
          {"selu", [](T x, T) { return nn::selu(x); }},
          {"gelu", [](T x, T) { return nn::gelu(x); }},
          {"gelu_tanh", [](T x, T) { return nn::gelu(x, true); }},
          {"swish", [](T x, T) { return nn::swish(x); }},
          {"softplus", [](T x, T) { return nn::softplus(x); }},
          {"pow", [](T x, T y) { return pow(x, y); }},
          {"pow number", [](T x, T) { return pow(x, 2.5); }},
          {"floor_mod", [](T x, T y) { return floor_mod(x, y); }},
          {"floor_divide", [](T x, T y) { return floor_divide(x, y); }},
          {"sigmoid_cross_entropy", [](T x, T y) { return nn::sigmoid_cross_entropy(y, x); }}};
}

// The values of x and y are those of all elements, with infinities, NaN, zeros and huge numbers.
Tensor inputs_of(std::int64_t count, std::uint64_t seed, DType dtype) {
  std::vector<double> values = values_of(random_tensor({count}, seed, -4, 4, float32));
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {inf, -inf, std::nan(""), 0.0, -0.0, 3e4, -5e4, 1e30, 1e-30, 1.0, 88.0};
  for (std::size_t i = 0; i < values.size(); i += 5)
    values[i] = special[i / 5 * (1 + seed % 3) % std::size(special)];
  return cast(constant(values, {.dtype = float64}), dtype);
}

void expect_same_bits(const Tensor& a, const Tensor& b, const char* name, std::int64_t at) {
  const std::vector<double> left = values_of(a), right = values_of(b);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(left[i]) && std::isnan(right[i])) continue;
    ASSERT_EQ(std::memcmp(&left[i], &right[i], sizeof(double)), 0)
        << name << " at " << at << " + " << i << ": " << left[i] << " and " << right[i];
  }
}

// The value, and the gradient with respect to x.
std::vector<Tensor> results_of(const Function& f, const Tensor& x, const Tensor& y) {
  GradientTape tape;
  tape.watch(x);
  const Tensor value = f(x, y);
  return {value, tape.gradient(value, x)};
}

class ElementPosition : public ::testing::TestWithParam<DType> {};

TEST_P(ElementPosition, DoesNotChangeTheResult) {
  constexpr std::int64_t kAll = 1200;
  const Tensor x = inputs_of(kAll, 1, GetParam()), y = inputs_of(kAll, 2, GetParam());
  for (const auto& [name, f] : functions()) {
    const std::vector<Tensor> all = results_of(f, x, y);
    for (std::int64_t count = 1; count <= 40; ++count) {
      const std::int64_t at = count * 29 % (kAll - count);
      const auto part = [&](const Tensor& t) { return slice_rows(t, at, at + count); };
      const std::vector<Tensor> few = results_of(f, part(x), part(y));
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].defined()) continue;
        expect_same_bits(few[i], part(all[i]), name, at);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ElementPosition, ::testing::Values(float32, float16, bfloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Angles, OfAnySizeGiveAccurateSines) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {131072.0, 131073.0, 1e6,       3.3e9, -1e10,
                                1e20,     -3.3e38,  3.1415927, inf};
  for (int i = 0; i < 2000; ++i) values.push_back(std::ldexp(1.0 + i * 0.0005, i % 140 - 12));
  for (const DType dtype : {float32, bfloat16}) {
    const Tensor x = constant(values, {.dtype = dtype});
    std::vector<double> sines, cosines;
    for (const double each : values_of(x)) {
      sines.push_back(std::sin(each));
      cosines.push_back(std::cos(each));
    }
    testing::expect_tensor(sin(x), dtype, x.shape(), sines, testing::epsilon_of(dtype));
    testing::expect_tensor(cos(x), dtype, x.shape(), cosines, testing::epsilon_of(dtype));
  }
}

TEST(Quotients, OfAnySizeHaveExactRemainders) {
  std::vector<double> left, right, rests, quotients;
  const auto add = [&](float a, float b) {
    left.push_back(a), right.push_back(b);
    double rest = std::fmod(static_cast<double>(a), static_cast<double>(b));
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    rests.push_back(rest);
  };
  for (int i = 0; i < 700; ++i)
    for (const float sign : {1.0f, -1.0f})
      add(sign * std::ldexp(1.37f, i % 120 - 20), 0.7f + static_cast<float>(i) * 0.001f);
  add(1.0f, std::numeric_limits<float>::infinity());
  add(5.0f, 0.0f);
  add(std::numeric_limits<float>::infinity(), 3.0f);
  const Tensor a = constant(left, {.dtype = float32}), b = constant(right, {.dtype = float32});
  testing::expect_tensor(floor_mod(a, b), float32, a.shape(), rests, 1e-7);
  // One divisor or dividend for all
  std::vector<double> by_three, of_huge;
  for (std::size_t i = 0; i < left.size(); ++i) {
    double rest = std::fmod(left[i], 3.0);
    if (rest < 0) rest += 3.0;
    by_three.push_back(rest);
    of_huge.push_back(std::fmod(1e30f, right[i]));
  }
  testing::expect_tensor(floor_mod(a, constant({3.0}, {.dtype = float32})), float32, a.shape(),
                         by_three, 1e-7);
  testing::expect_tensor(floor_mod(constant({1e30f}, {.dtype = float32}), b), float32, a.shape(),
                         of_huge, 1e-7);
}

}  // namespace
}  // namespace tandem::element_position_test
