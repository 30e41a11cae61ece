// Assertions about tensors: those of debugging.
#include "tandem/assertions.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::assertions_test {
namespace {

using debugging::assert_close;
using testing::expect_error;

TEST(AssertClose, AcceptsWhatItsDtypeAllows) {
  const Tensor x = constant({1.0, 100.0});
  assert_close(x, x);
  assert_close(x * (1.0 + 1e-6), x);
  expect_error<InvalidArgumentError>([&] { assert_close(x * (1.0 + 1e-4), x); },
                                     "[assert_close] expected equal or close elements, 2 of 2 "
                                     "differ; the most at (1): expected 100, got 100.01");
  const Tensor wide = cast(x, float64);
  expect_error<InvalidArgumentError>([&] { assert_close(wide * (1.0 + 1e-6), wide); },
                                     "2 of 2 differ");
  assert_close(wide * (1.0 + 1e-6), wide, {.rtol = 1e-5, .atol = 0.0});
  assert_close(cast(x * 1.01, bfloat16), cast(x, bfloat16));
  expect_error<InvalidArgumentError>([&] { assert_close(x, x, {.rtol = 1e-5}); },
                                     "expected both rtol and atol, or neither");
}

TEST(AssertClose, ComparesDtypesShapesAndNaN) {
  const Tensor x = reshape(range(4), {2, 2});
  assert_close(x, x);
  expect_error<InvalidArgumentError>([&] { assert_close(cast(x, int64), x); },
                                     "[assert_close] expected dtype int32, got int64");
  assert_close(cast(x, int64), x, {.check_dtype = false});
  expect_error<ShapeError>([&] { assert_close(x, reshape(x, {4})); },
                           "[assert_close] expected shape (4,), got (2, 2)");
  expect_error<InvalidArgumentError>(
      [&] {
        assert_close(x, x + constant({{0, 0}, {3, 0}}));
      },
      "1 of 4 differ; the most at (1, 0): expected 5, got 2");
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor special = constant({kNaN, kInfinity});
  expect_error<InvalidArgumentError>([&] { assert_close(special, special); },
                                     "1 of 2 differ; the most at (0)");
  assert_close(special, special, {.equal_nan = true});
  expect_error<InvalidArgumentError>(
      [&] { assert_close(constant({1.0}), constant({kInfinity}), {.rtol = 1.0, .atol = 1.0}); },
      "1 of 1 differ");
  assert_close(zeros({0, 3}), zeros({0, 3}));
}

TEST(Debugging, AssertsEqualAndNear) {
  const Tensor x = constant({1.0, 2.0});
  debugging::assert_equal(x, x);
  expect_error<InvalidArgumentError>([&] { debugging::assert_equal(x, x + 1.0, "weights"); },
                                     "weights: [assert_equal] expected equal or close elements");
  debugging::assert_near(x, x * (1.0 + 1e-6));
  expect_error<InvalidArgumentError>([&] { debugging::assert_near(x, x + 1e-4); },
                                     "[assert_near] expected equal or close elements, 2 of 2");
  debugging::assert_near(x, x + 1e-4, {.atol = 1e-3});
}

TEST(Debugging, AssertsOrder) {
  const Tensor x = constant({1.0, 2.0, 3.0});
  debugging::assert_less(x, constant(3.5));
  debugging::assert_less_equal(x, x);
  debugging::assert_greater(x + 1.0, x);
  debugging::assert_greater_equal(x, constant(1.0));
  expect_error<InvalidArgumentError>(
      [&] { debugging::assert_less(x, constant(2.0), "loss"); },
      "loss: [assert_less] expected x < y for all elements, 2 of 3 do not hold");
  expect_error<InvalidArgumentError>([&] { debugging::assert_less_equal(x, x - 1.0); },
                                     "[assert_less_equal] expected x <= y for all elements, 3 of");
  expect_error<InvalidArgumentError>([&] { debugging::assert_greater(x, x); },
                                     "[assert_greater] expected x > y for all elements, 3 of 3");
  const Tensor nan = constant(std::numeric_limits<double>::quiet_NaN());
  expect_error<InvalidArgumentError>([&] { debugging::assert_greater_equal(x, nan); },
                                     "[assert_greater_equal] expected x >= y for all elements");
}

}  // namespace
}  // namespace tandem::assertions_test
