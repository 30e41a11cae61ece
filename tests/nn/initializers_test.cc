#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/initializers.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::initializers_test {
namespace {

using testing::expect_error;
using testing::values_of;

struct Moments {
  double mean = 0.0, variance = 0.0, smallest = 0.0, largest = 0.0;
};

Moments moments_of(const Tensor& tensor) {
  const std::vector<double> values = values_of(tensor);
  Moments m{.smallest = values[0], .largest = values[0]};
  for (double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.smallest = std::min(m.smallest, v);
    m.largest = std::max(m.largest, v);
  }
  for (double v : values)
    m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

TEST(Initializers, ConstantsFillTheTensor) {
  EXPECT_EQ(initializers::zeros()({2, 2}).to_vector<float>(), std::vector<float>(4, 0.0f));
  EXPECT_EQ(initializers::ones()({3}).to_vector<float>(), std::vector<float>(3, 1.0f));
  EXPECT_EQ(initializers::constant(2.5)({2}, float64).to_vector<double>(),
            std::vector<double>(2, 2.5));
}

// Expects random numbers of variance `variance` within +-`limit`.
void expect_spread(const Initializer& initializer, const Shape& shape, double variance,
                   double limit) {
  random::set_seed(3);
  const Moments m = moments_of(initializer(shape));
  EXPECT_NEAR(m.mean, 0.0, 4.0 * std::sqrt(variance / static_cast<double>(shape.num_elements())));
  EXPECT_NEAR(m.variance, variance, 0.03 * variance) << initializer.name();
  EXPECT_LE(m.largest, limit) << initializer.name();
  EXPECT_GE(m.smallest, -limit) << initializer.name();
  EXPECT_GT(m.largest, 0.97 * limit) << initializer.name();  // the whole range is used
}

TEST(Initializers, ScaleWithTheFans) {
  const Shape shape{200, 300};
  const auto uniform = [](double variance) { return std::sqrt(3.0 * variance); };
  const auto normal = [](double variance) {
    return 2.0 * std::sqrt(variance) / 0.87962566103423978;
  };
  for (const auto& [initializer, variance] :
       std::vector<std::pair<Initializer, double>>{{initializers::glorot_uniform(), 2.0 / 500.0},
                                                   {initializers::he_uniform(), 2.0 / 200.0},
                                                   {initializers::lecun_uniform(), 1.0 / 200.0}})
    expect_spread(initializer, shape, variance, uniform(variance));
  for (const auto& [initializer, variance] :
       std::vector<std::pair<Initializer, double>>{{initializers::glorot_normal(), 2.0 / 500.0},
                                                   {initializers::he_normal(), 2.0 / 200.0},
                                                   {initializers::lecun_normal(), 1.0 / 200.0}})
    expect_spread(initializer, shape, variance, normal(variance));
}

TEST(Initializers, TheFansOfConvolutionsIncludeTheWindow) {
  const double variance = 2.0 / (3 * 3 * (40 + 50));
  expect_spread(initializers::glorot_uniform(), {3, 3, 40, 50}, variance,
                std::sqrt(3.0 * variance));
}

TEST(Initializers, DependOnTheSeedOnly) {
  random::set_seed(11);
  const auto first = initializers::glorot_uniform()({4, 5}).to_vector<float>();
  const auto second = initializers::glorot_uniform()({4, 5}).to_vector<float>();
  EXPECT_NE(first, second);
  random::set_seed(11);
  EXPECT_EQ(initializers::glorot_uniform()({4, 5}).to_vector<float>(), first);
}

TEST(Initializers, OrthogonalRowsOrColumnsHaveOneLength) {
  const struct {
    Shape shape;
    std::int64_t rows, columns;
  } cases[] = {{{40, 40}, 40, 40}, {{5, 20}, 5, 20},   {{20, 5}, 20, 5},
               {{1, 1}, 1, 1},     {{3, 4, 6}, 12, 6}, {{7, 1}, 7, 1}};
  for (const auto& c : cases)
    for (const DType dtype : {float32, float64}) {
      SCOPED_TRACE(c.shape.to_string());
      const Tensor value = initializers::orthogonal(1.5)(c.shape, dtype);
      EXPECT_EQ(value.dtype(), dtype);
      EXPECT_EQ(value.shape(), c.shape);
      const Tensor matrix = reshape(value, {c.rows, c.columns});
      const Tensor products = c.rows > c.columns ? matmul(matrix, matrix, {.transpose_a = true})
                                                 : matmul(matrix, matrix, {.transpose_b = true});
      const std::int64_t size = std::min(c.rows, c.columns);
      testing::expect_tensor(products, dtype, {size, size},
                             values_of(eye(size, size, {.dtype = float64}) * 2.25),
                             dtype == float64 ? 1e-10 : 1e-5);
    }
  EXPECT_EQ(initializers::orthogonal()({4, 4}, bfloat16).dtype(), bfloat16);
  expect_error<InvalidArgumentError>([] { static_cast<void>(initializers::orthogonal()({4})); },
                                     "[orthogonal] expected a shape of two or more axes, got (4,)");
}

TEST(Initializers, AreFoundByName) {
  EXPECT_EQ(Initializer("he_normal").name(), "he_normal");
  expect_error<InvalidArgumentError>([] { Initializer("he"); },
                                     "[initializers] expected one of: zeros, ones");
  expect_error<FailedPreconditionError>([] { Initializer()({2}); }, "[Initializer]");
}

}  // namespace
}  // namespace tandem::initializers_test
