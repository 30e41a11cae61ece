#include <cmath>
#include <cstddef>
#include <vector>

#include "core/status.h"
#include "tandem/array.h"
#include "tandem/assertions.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem {
namespace {

struct Tolerance {
  double relative = 0.0, absolute = 0.0;
};

struct Comparison {
  Tolerance tolerance;
  bool equal_nan = false;
  bool check_dtype = true;
  std::string what;  // begins messages
};

std::string position_of(std::size_t element, const Shape& shape) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(shape.rank()));
  auto rest = static_cast<std::int64_t>(element);
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    indices[static_cast<std::size_t>(axis)] = rest % shape.word(axis);
    rest /= shape.word(axis);
  }
  return fmt::format("({})", fmt::join(indices, ", "));
}

std::vector<double> elements_of(const Tensor& tensor) {
  return cast(tensor, float64).to_vector<double>();
}

void compare(const Tensor& actual, const Tensor& expected, const Comparison& comparison) {
  NoGradScope no_grad;
  if (comparison.check_dtype && actual.dtype() != expected.dtype())
    fail<InvalidArgumentError>("{} expected dtype {}, got {}", comparison.what,
                               name_of(expected.dtype()), name_of(actual.dtype()));
  if (actual.shape() != expected.shape())
    fail<ShapeError>("{} expected shape {}, got {}", comparison.what, expected.shape().to_string(),
                     actual.shape().to_string());
  const std::vector<double> a = elements_of(actual), e = elements_of(expected);
  std::size_t differ = 0, worst = 0;
  double greatest = -1.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i] || (comparison.equal_nan && std::isnan(a[i]) && std::isnan(e[i]))) continue;
    const double difference = std::abs(a[i] - e[i]);
    if (std::isfinite(e[i]) && difference <= comparison.tolerance.absolute +
                                                 comparison.tolerance.relative * std::abs(e[i]))
      continue;
    ++differ;
    if (const double size = std::isnan(difference) ? HUGE_VAL : difference; size > greatest) {
      greatest = size;
      worst = i;
    }
  }
  if (differ > 0)
    fail<InvalidArgumentError>(
        "{} expected equal or close elements, {} of {} differ; the most at {}: expected {}, got {} "
        "(allowed: {} + {} * |expected|)",
        comparison.what, differ, a.size(), position_of(worst, actual.shape()), e[worst], a[worst],
        comparison.tolerance.absolute, comparison.tolerance.relative);
}

// The defaults of torch.testing.assert_close.
Tolerance default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return {1e-3, 1e-5};
    case DType::kBFloat16: return {1.6e-2, 1e-5};
    case DType::kFloat32: return {1.3e-6, 1e-5};
    case DType::kFloat64: return {1e-7, 1e-7};
    default: return {};
  }
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 0x1p-10;
    case DType::kBFloat16: return 0x1p-7;
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat64: return 0x1p-52;
    default: return 0.0;
  }
}

std::string prefixed(const char* what, const std::string& message) {
  return message.empty() ? fmt::format("[{}]", what) : fmt::format("{}: [{}]", message, what);
}

}  // namespace

void debugging::assert_close(const Tensor& actual, const Tensor& expected,
                             const CloseOptions& options) {
  if (options.rtol.has_value() != options.atol.has_value())
    throw InvalidArgumentError("[assert_close] expected both rtol and atol, or neither, got one");
  const Tolerance mine = default_tolerance(actual.dtype()),
                  other = default_tolerance(expected.dtype());
  compare(actual, expected,
          {.tolerance = {options.rtol.value_or(std::max(mine.relative, other.relative)),
                         options.atol.value_or(std::max(mine.absolute, other.absolute))},
           .equal_nan = options.equal_nan,
           .check_dtype = options.check_dtype,
           .what = "[assert_close]"});
}

void debugging::assert_equal(const Tensor& x, const Tensor& y, const std::string& message) {
  compare(x, y, {.what = prefixed("assert_equal", message)});
}

namespace {

void expect_all(const Tensor& holds, const char* what, const char* relation,
                const std::string& message) {
  const Tensor wrong = reduce_sum(cast(logical_not(holds), int64));
  if (const auto count = wrong.item<std::int64_t>(); count > 0)
    fail<InvalidArgumentError>("{} expected x {} y for all elements, {} of {} do not hold",
                               prefixed(what, message), relation, count,
                               holds.shape().num_elements());
}

}  // namespace

void debugging::assert_less(const Tensor& x, const Tensor& y, const std::string& message) {
  expect_all(less(x, y), "assert_less", "<", message);
}
void debugging::assert_less_equal(const Tensor& x, const Tensor& y, const std::string& message) {
  expect_all(less_equal(x, y), "assert_less_equal", "<=", message);
}
void debugging::assert_greater(const Tensor& x, const Tensor& y, const std::string& message) {
  expect_all(greater(x, y), "assert_greater", ">", message);
}
void debugging::assert_greater_equal(const Tensor& x, const Tensor& y, const std::string& message) {
  expect_all(greater_equal(x, y), "assert_greater_equal", ">=", message);
}

void debugging::assert_near(const Tensor& x, const Tensor& y, const NearOptions& options) {
  const double tolerance = 10.0 * epsilon_of(x.dtype());
  compare(x, y,
          {.tolerance = {options.rtol.value_or(tolerance), options.atol.value_or(tolerance)},
           .what = prefixed("assert_near", options.message)});
}

}  // namespace tandem
