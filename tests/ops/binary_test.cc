#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/gradient_check.h"
#include "support/thread_counts.h"
#include "tandem/math.h"

namespace tandem::binary_test {
namespace {

using namespace testing;

using Scalar = double (*)(double, double);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

struct Case {
  const char* name;
  Binary op;
  Scalar exact;
};

double floor_mod_of(double a, double b) { return a - b * std::floor(a / b); }

const Case kArithmetic[] = {
    {"add", add, [](double a, double b) { return a + b; }},
    {"subtract", subtract, [](double a, double b) { return a - b; }},
    {"multiply", multiply, [](double a, double b) { return a * b; }},
    {"divide", divide, [](double a, double b) { return a / b; }},
    {"maximum", maximum, [](double a, double b) { return std::fmax(a, b); }},
    {"minimum", minimum, [](double a, double b) { return std::fmin(a, b); }},
    {"squared_difference", squared_difference,
     [](double a, double b) { return (a - b) * (a - b); }},
    {"floor_divide", floor_divide, [](double a, double b) { return std::floor(a / b); }},
    {"floor_mod", floor_mod, floor_mod_of},
};

// The elements of `tensor` broadcast to `shape`.
std::vector<double> repeated(const Tensor& tensor, const Shape& shape) {
  const std::vector<double> values = values_of(tensor);
  std::vector<double> result;
  for (std::int64_t i = 0; i < shape.num_elements(); ++i) {
    std::int64_t rest = i, from = 0, stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % shape[axis];
      rest /= shape[axis];
      const int own = axis - (shape.rank() - tensor.rank());
      if (own < 0) continue;
      if (tensor.shape()[own] != 1) from += index * stride;
      stride *= tensor.shape()[own];
    }
    result.push_back(values[static_cast<std::size_t>(from)]);
  }
  return result;
}

void check(const Case& test, const Tensor& a, const Tensor& b, const Shape& shape,
           double tolerance) {
  SCOPED_TRACE(::testing::Message()
               << test.name << ' ' << a.shape() << ' ' << b.shape() << ' ' << a.dtype());
  const auto left = repeated(a, shape), right = repeated(b, shape);
  std::vector<double> expected;
  for (std::size_t i = 0; i < left.size(); ++i) expected.push_back(test.exact(left[i], right[i]));
  expect_tensor(test.op(a, b), a.dtype(), shape, expected, tolerance);
}

struct Shapes {
  Shape a, b, result;
};
const Shapes kShapes[] = {
    {Shape({7}), Shape({7}), Shape({7})},
    {Shape({3, 5}), Shape({5}), Shape({3, 5})},
    {Shape({5}), Shape({3, 5}), Shape({3, 5})},
    {Shape({3, 5}), Shape({3, 1}), Shape({3, 5})},
    {Shape({3, 1}), Shape({1, 5}), Shape({3, 5})},
    {Shape({2, 3, 4}), Shape::scalar(), Shape({2, 3, 4})},
    {Shape::scalar(), Shape({2, 3, 4}), Shape({2, 3, 4})},
    {Shape::scalar(), Shape::scalar(), Shape::scalar()},
    {Shape({2, 1, 4, 1}), Shape({3, 1, 5}), Shape({2, 3, 4, 5})},
    {Shape({1, 1}), Shape({4}), Shape({1, 4})},
    {Shape({0, 3}), Shape({3}), Shape({0, 3})},
    {Shape({2, 0}), Shape({1, 1}), Shape({2, 0})},
};

TEST(Binary, EveryOperationBroadcastsInFloat64) {
  for (const Case& test : kArithmetic)
    for (const Shapes& shapes : kShapes)
      check(test, random_tensor(shapes.a, 1), random_tensor(shapes.b, 2, 0.5, 3.0), shapes.result,
            4e-16);
}

TEST(Binary, EveryFloatingDtype) {
  for (DType dtype : testing::kFloatingTypes)
    for (const Case& test : kArithmetic) {
      // Floor division is discontinuous, so this uses numbers whose quotients are exact.
      const bool jumps = test.op == Binary(floor_divide) || test.op == Binary(floor_mod);
      const Tensor a = jumps ? constant({-7.0, -6.5, 5.25, 8.0}, {.dtype = dtype})
                             : random_tensor(Shape({1003}), 3, -2, 2, dtype);
      const Tensor b = jumps ? constant({2.0, 2.0, -4.0, 0.5}, {.dtype = dtype})
                             : random_tensor(Shape({1003}), 4, 0.5, 3, dtype);
      // squared_difference rounds the difference, too, and the square doubles that error.
      check(test, a, b, a.shape(), (test.op == squared_difference ? 2 : 1) * epsilon_of(dtype));
    }
}

TEST(Binary, IntegersIncludingNegativeDivision) {
  for (DType dtype : {int32, int64}) {
    const Tensor a = constant({7, -7, 7, -7, 6, 0}, {.dtype = dtype});
    const Tensor b = constant({2, 2, -2, -2, 3, -1}, {.dtype = dtype});
    for (const Case& test : kArithmetic) {
      if (test.op == static_cast<Binary>(divide)) continue;
      check(test, a, b, a.shape(), 0.0);
    }
    expect_tensor(a / b, dtype, a.shape(), {3, -3, -3, 3, 2, 0});
  }
  const Tensor a = constant({200, 3, 255}, {.dtype = uint8}),
               b = constant({100, 5, 255}, {.dtype = uint8});
  expect_tensor(a + b, uint8, a.shape(), {44, 8, 254});
  expect_tensor(a - b, uint8, a.shape(), {100, 254, 0});
  expect_tensor(a / b, uint8, a.shape(), {2, 0, 1});
  expect_tensor(floor_mod(a, b), uint8, a.shape(), {0, 3, 0});
}

TEST(Binary, IntegerOverflowWraps) {
  const Tensor lowest = constant({std::numeric_limits<std::int32_t>::lowest()});
  const Tensor minus_one = constant({-1});
  expect_tensor(lowest / minus_one, int32, Shape({1}), {-2147483648.0});
  expect_tensor(floor_divide(lowest, minus_one), int32, Shape({1}), {-2147483648.0});
  expect_tensor(floor_mod(lowest, minus_one), int32, Shape({1}), {0.0});
  expect_tensor(lowest - constant({1}), int32, Shape({1}), {2147483647.0});
  expect_tensor(pow(constant({-3}), constant({3})), int32, Shape({1}), {-27.0});
}

TEST(Binary, DivisionByIntegerZeroNamesTheElement) {
  const Tensor a = constant({1, 2, 3}), b = constant({1, 0, 3});
  expect_error<InvalidArgumentError>([&] { (a / b).to_vector<int>(); },
                                     "[RealDiv] expected a non-zero divisor, got 0 at element 1");
  expect_error<InvalidArgumentError>([&] { floor_mod(a, b).to_vector<int>(); },
                                     "[FloorMod] expected a non-zero");
  expect_error<InvalidArgumentError>([&] { (a / 0).to_vector<int>(); },
                                     "[DivScalar] expected a non-zero divisor");
  expect_error<InvalidArgumentError>([&] { (5 / b).to_vector<int>(); },
                                     "[ScalarDiv] expected a non-zero divisor");
  expect_tensor(constant({1.0}) / 0.0, float32, Shape({1}),
                {std::numeric_limits<double>::infinity()});
}

TEST(Binary, NumbersTakeTheTensorsDtype) {
  for (DType dtype : testing::kFloatingTypes) {
    const Tensor x = constant({1.0, -2.0, 4.0}, {.dtype = dtype});
    expect_tensor(x + 0.5, dtype, x.shape(), {1.5, -1.5, 4.5});
    expect_tensor(0.5 + x, dtype, x.shape(), {1.5, -1.5, 4.5});
    expect_tensor(x - 0.5, dtype, x.shape(), {0.5, -2.5, 3.5});
    expect_tensor(0.5 - x, dtype, x.shape(), {-0.5, 2.5, -3.5});
    expect_tensor(x * 3.0, dtype, x.shape(), {3.0, -6.0, 12.0});
    expect_tensor(x / 2.0, dtype, x.shape(), {0.5, -1.0, 2.0});
    expect_tensor(2.0 / x, dtype, x.shape(), {2.0, -1.0, 0.5});
    expect_tensor(maximum(x, 0.0), dtype, x.shape(), {1.0, 0.0, 4.0});
    expect_tensor(minimum(x, 0.0), dtype, x.shape(), {0.0, -2.0, 0.0});
    expect_tensor(pow(x, 2.0), dtype, x.shape(), {1.0, 4.0, 16.0});
    expect_tensor(pow(x, 3.0), dtype, x.shape(), {1.0, -8.0, 64.0});
    expect_tensor(pow(x, -1.0), dtype, x.shape(), {1.0, -0.5, 0.25});
  }
  expect_tensor(constant({1, 2}) * 3, int32, Shape({2}), {3, 6});
  expect_tensor(constant({7, 9}) / 2, int32, Shape({2}), {3, 4});
}

TEST(Binary, NumbersThatTheDtypeCannotHoldAreRefused) {
  const Tensor x = constant({1, 2});
  expect_error<InvalidArgumentError>([&] { x * 2.5; },
                                     "[MulScalar] expected a number that int32 holds, got 2.5");
  expect_error<InvalidArgumentError>([&] { x + 3e9; }, "int32 holds");
  expect_error<InvalidArgumentError>([&] { constant({1.0}, {.dtype = float16}) * 1e6; },
                                     "float16 holds");
  expect_error<InvalidArgumentError>([&] { constant({1}, {.dtype = uint8}) - 256; }, "uint8 holds");
  expect_error<InvalidArgumentError>([&] { pow(x, -1.0); },
                                     "[PowScalar] expected an exponent of at least 0");
}

TEST(Binary, PowerAgainstTheStandardLibrary) {
  const Tensor a = random_tensor(Shape({50}), 1, 0.1, 3), b = random_tensor(Shape({50}), 2, -3, 3);
  check({"pow", pow, [](double x, double y) { return std::pow(x, y); }}, a, b, a.shape(), 1e-14);
  expect_tensor(pow(constant({2, 3, 0}), constant({10, 0, 0})), int32, Shape({3}), {1024, 1, 1});
  expect_error<InvalidArgumentError>(
      [&] { pow(constant({2}), constant({-1})).to_vector<int>(); },
      "[Pow] expected an exponent of at least 0, got -1 at element 0");
}

TEST(Binary, ExtremaKeepNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor a = constant({nan, 1.0}), b = constant({1.0, nan});
  expect_tensor(maximum(a, b), float32, Shape({2}), {nan, nan});
  expect_tensor(minimum(a, b), float32, Shape({2}), {nan, nan});
}

TEST(Binary, NamesShapesAndDtypesThatDoNotMatch) {
  const Tensor a = random_tensor(Shape({2, 3}));
  expect_error<InvalidArgumentError>(
      [&] { a + random_tensor(Shape({4})); },
      "[AddV2] expected shapes that broadcast together, got (2, 3) and (4,)");
  expect_error<InvalidArgumentError>(
      [&] { a* constant({1.0}); }, "[Mul] expected tensors of one dtype, got float64 and float32");
  expect_error<InvalidArgumentError>([&] { constant({true}) + constant({true}); },
                                     "[AddV2] expected a floating or integer dtype, got bool");
  expect_error<FailedPreconditionError>([&] { a + Tensor(); }, "undefined");
}

TEST(Binary, GradientsMatchDifferences) {
  for (const Case& test : kArithmetic) {
    if (test.op == Binary(floor_divide)) continue;  // not differentiable
    SCOPED_TRACE(test.name);
    const auto f = [&](const std::vector<Tensor>& x) { return test.op(x[0], x[1]); };
    expect_gradients(f, {random_tensor(Shape({3, 4}), 1), random_tensor(Shape({3, 4}), 2, 2.1, 3)});
    expect_gradients(f,
                     {random_tensor(Shape({2, 1, 3}), 3), random_tensor(Shape({4, 1}), 4, 2.1, 3)});
    expect_gradients(f, {random_tensor(Shape({3}), 5), random_tensor(Shape({2, 1}), 6, 2.1, 3)});
    expect_gradients(f,
                     {random_tensor(Shape::scalar(), 7), random_tensor(Shape({2, 2}), 8, 2.1, 3)});
    expect_second_order([&](const std::vector<Tensor>& x) { return square(f(x)); },
                        {random_tensor(Shape({3}), 9), random_tensor(Shape({2, 3}), 10, 2.1, 3)});
  }
}

TEST(Binary, GradientsOfPowers) {
  const auto f = [](const std::vector<Tensor>& x) { return pow(x[0], x[1]); };
  expect_gradients(f, {random_tensor(Shape({3, 2}), 1, 0.5, 2), random_tensor(Shape({2}), 2)});
  expect_second_order(f, {random_tensor(Shape({4}), 1, 0.5, 2), random_tensor(Shape({4}), 2)});
  for (double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5})
    expect_gradients([=](const std::vector<Tensor>& x) { return pow(x[0], exponent); },
                     {random_tensor(Shape({5}), 3, 0.5, 2)});
}

TEST(Binary, GradientsBesideNumbers) {
  const std::function<Tensor(const Tensor&)> functions[] = {
      [](const Tensor& x) { return x + 2.0; },
      [](const Tensor& x) { return x - 2.0; },
      [](const Tensor& x) { return 2.0 - x; },
      [](const Tensor& x) { return x * 3.0; },
      [](const Tensor& x) { return x / 3.0; },
      [](const Tensor& x) { return 3.0 / x; },
      [](const Tensor& x) { return maximum(x, 0.9); },
      [](const Tensor& x) { return minimum(x, 0.9); },
  };
  for (const auto& f : functions) {
    const auto on_list = [&](const std::vector<Tensor>& x) { return f(x[0]); };
    expect_gradients(on_list, {random_tensor(Shape({2, 3}), 1, 0.5, 2)});
    expect_second_order([&](const std::vector<Tensor>& x) { return square(f(x[0])); },
                        {random_tensor(Shape({4}), 1, 0.5, 2)});
  }
}

TEST(Binary, TiesGiveTheGradientToTheLeftOperand) {
  const Tensor a = constant({1.0, 2.0}), b = constant({1.0, 3.0});
  GradientTape tape;
  tape.watch(a);
  tape.watch(b);
  const auto gradients = tape.gradient(maximum(a, b), std::vector<Tensor>{a, b});
  expect_tensor(gradients[0], float32, Shape({2}), {1.0, 0.0});
  expect_tensor(gradients[1], float32, Shape({2}), {0.0, 1.0});
}

TEST(Binary, LargeTensorsAreTheSameForAnyNumberOfThreads) {
  testing::expect_same_bits_with_any_team([] {
    return values_of(random_tensor(Shape({301, 1, 257}), 1, -2, 2, float32) /
                     random_tensor(Shape({3, 257}), 2, 0.5, 2, float32));
  });
  const Tensor a = random_tensor(Shape({301, 1, 257}), 1, -2, 2, float32);
  const Tensor b = random_tensor(Shape({3, 257}), 2, 0.5, 2, float32);
  const auto expected_left = values_of(a), expected_right = values_of(b);
  const std::vector<float> first = (a / b).to_vector<float>();
  for (std::size_t i = 0; i < first.size(); i += 1009) {
    const std::size_t column = i % 257, middle = i / 257 % 3, row = i / 257 / 3;
    EXPECT_FLOAT_EQ(first[i], static_cast<float>(expected_left[row * 257 + column] /
                                                 expected_right[middle * 257 + column]));
  }
}

// For lengths around those of vectors, and for products that are subnormal, zero, infinite or NaN.
TEST(Binary, SixteenBitResultsAreRoundedOnce) {
  const std::vector<double> specials = {1e-20, -3e-20, 1e-38, -2e-39, 0.0,  -0.0,     1.0,
                                        -1.5,  3.14,   1e20,  -3e38,  1e30, INFINITY, NAN};
  for (const DType dtype : {bfloat16, float16})
    for (std::int64_t count = 1; count <= 100; ++count) {
      std::vector<double> left, right;
      for (std::int64_t i = 0; i < count; ++i) {
        left.push_back(specials[static_cast<std::size_t>(i * 5 + count) % specials.size()]);
        right.push_back(specials[static_cast<std::size_t>(i * 3) % specials.size()]);
      }
      const Tensor a = cast(constant(left, {.dtype = float32}), dtype);
      const Tensor b = cast(constant(right, {.dtype = float32}), dtype);
      const Tensor expected = cast(cast(a, float32) * cast(b, float32), dtype);
      const auto results = values_of(a * b), values = values_of(expected);
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (std::isnan(values[i]))
          ASSERT_TRUE(std::isnan(results[i])) << left[i] << " * " << right[i];
        else
          ASSERT_EQ(results[i], values[i]) << left[i] << " * " << right[i];
      }
    }
}

TEST(AddN, SumsInOrderInEveryDtype) {
  for (DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8}) {
    std::vector<Tensor> tensors;
    for (int n = 0; n < 9; ++n) tensors.push_back(full(Shape({5000}), n, {.dtype = dtype}));
    expect_tensor(add_n(tensors), dtype, Shape({5000}), std::vector<double>(5000, 36.0));
  }
  const Tensor one = random_tensor(Shape({2, 2}));
  expect_tensor(add_n({one}), float64, one.shape(), values_of(one));
  expect_tensor(add_n({zeros(Shape({0})), zeros(Shape({0}))}), float32, Shape({0}), {});
}

TEST(AddN, SixteenBitSumsAreKeptInFloat32) {
  // 2048 + 1 is not representable in float16, so a float16 sum would lose every 1.
  std::vector<Tensor> tensors = {full(Shape({3}), 2048.0, {.dtype = float16})};
  for (int n = 0; n < 4; ++n) tensors.push_back(ones(Shape({3}), {.dtype = float16}));
  expect_tensor(add_n(tensors), float16, Shape({3}), {2052, 2052, 2052});
}

TEST(AddN, GradientsAndErrors) {
  expect_gradients(
      [](const std::vector<Tensor>& x) {
        return add_n({x[0], x[1], x[0]});
      },
      {random_tensor(Shape({3}), 1), random_tensor(Shape({3}), 2)});
  expect_error<InvalidArgumentError>([] { add_n(std::vector<Tensor>()); },
                                     "[AddN] expected at least one tensor");
  expect_error<InvalidArgumentError>(
      [] {
        add_n({zeros(Shape({2})), zeros(Shape({3}))});
      },
      "[AddN] expected tensors of one shape and dtype, (2,) float32, got (3,) float32 as tensor 1");
}

TEST(Binary, TheDerivativeOfZeroToTheZerothIsZero) {
  const Tensor x = constant({0.0, 2.0, 0.0}), y = constant({0.0, 0.0, 1.0});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  tape.watch(y);
  const Tensor z = pow(x, y);
  expect_tensor(z, float32, {3}, {1, 1, 0});
  expect_tensor(tape.gradient(z, x), float32, {3}, {0, 0, 1});
  expect_tensor(tape.gradient(z, y), float32, {3}, {0, std::log(2.0), 0}, 1e-6);
}

// Quotient and remainder agree, as in Python, also if a / b is rounded up to a whole number.
TEST(Binary, FloorDivideAgreesWithFloorMod) {
  for (const DType dtype : {float32, float64}) {
    const Tensor a = constant({1.0, -1.0, 7.0, -7.0, 0.3, 0.0, 1.0, 6.0}, {.dtype = dtype});
    const Tensor b = constant({0.1, 0.1, 2.0, 2.0, -0.1, 5.0, 0.0, 0.1}, {.dtype = dtype});
    const std::vector<double> quotient = values_of(floor_divide(a, b));
    const std::vector<double> rest = values_of(floor_mod(a, b)), left = values_of(a),
                              right = values_of(b);
    for (std::size_t i = 0; i < quotient.size(); ++i) {
      if (right[i] == 0.0) continue;
      EXPECT_NEAR(quotient[i] * right[i] + rest[i], left[i], 1e-6) << "element " << i;
    }
    EXPECT_EQ(quotient[2], 3.0);
    EXPECT_EQ(quotient[3], -4.0);
    EXPECT_TRUE(std::isinf(quotient[6]));
  }
  EXPECT_EQ(floor_divide(constant({1.0}, {.dtype = float64}), constant({0.1}, {.dtype = float64}))
                .item<double>(),
            9.0);
}

}  // namespace
}  // namespace tandem::binary_test
