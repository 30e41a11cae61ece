// td::Dim: sizes in users' programs, known and unknown.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::dims_test {
namespace {

using testing::error_of;
using testing::expect_parts;

// printf("%ld", x.dim(0)) must not compile: it would print the code of an unknown size.
static_assert(!std::is_trivially_copyable_v<Dim>);
static_assert(std::is_convertible_v<Dim, std::int64_t> && std::is_convertible_v<int, Dim>);
static_assert(!std::is_convertible_v<double, Dim> && !std::is_convertible_v<Dim, Tensor>);

// Traces `body` of a matrix of unknown sizes, and runs it with this one.
Tensor traced(const std::function<Tensor(const Tensor&)>& body, const Tensor& x) {
  return function(body, {.input_signature = {{Shape{-1, -1}, x.dtype()}}})(x);
}

// The error of `body` while it is traced.
std::string error_in_trace(const std::function<void(const Tensor&)>& body) {
  return error_of<InvalidArgumentError>([&] {
    traced(
        [&](const Tensor& x) {
          body(x);
          return x;
        },
        ones({2, 3}));
  });
}

template <class T>
T twice(T value) {
  return value + value;
}

TEST(Dims, AreNumbersWhereTheyAreKnown) {
  const Tensor x = ones({3, 4});
  const std::int64_t rows = x.dim(0);
  const int columns = x.size(1);
  const std::size_t count = x.size();
  EXPECT_EQ(rows, 3);
  EXPECT_EQ(columns, 4);
  EXPECT_EQ(count, 12U);
  int steps = 0;
  for (int i = 0; i < x.dim(0); ++i) ++steps;
  for (std::size_t i = 0; i < x.dim(0); ++i) ++steps;
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(std::vector<std::int64_t>(x.dim(0)).size(), 3U);
  EXPECT_EQ((std::vector<std::int64_t>{x.dim(0), 5}), (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ((std::array<std::int64_t, 1>{x.dim(1)}[0]), 4);
  EXPECT_EQ(std::max<std::int64_t>(x.dim(0), 5), 5);
  EXPECT_EQ(std::max(x.dim(0), x.dim(1)), 4);
  EXPECT_EQ(max(x.dim(0), 1) + min(x.dim(1), 2), 5);
  switch (x.dim(0)) {
    case 3: ++steps; break;
    default: break;
  }
  EXPECT_EQ(steps, 7);
  EXPECT_EQ(twice(x.dim(0)), 6);
  const auto [first, second] = std::pair{x.dim(0), x.dim(1)};
  EXPECT_EQ(first * second, 12);
  EXPECT_EQ(std::to_string(x.dim(0)) + std::string(static_cast<std::size_t>(x.dim(0)), 'a'),
            "3aaa");
  std::map<std::int64_t, int> counts;
  counts[x.dim(0)] = 1;
  const float numbers[] = {0, 1, 2, 3};
  EXPECT_EQ(numbers[x.dim(0)] + *(numbers + x.dim(0)), 6);
  const std::optional<std::int64_t> given = x.dim(0);
  EXPECT_EQ(given, 3);
  enum { kColumns = 4 };
  EXPECT_EQ(zeros({x.dim(0), kColumns}).shape(), x.shape());
  EXPECT_TRUE(x.dim(1) == kColumns && x.dim(0) + kColumns == 7);
  char text[16];
  std::snprintf(text, sizeof text, "%d", static_cast<int>(x.dim(0)));
  EXPECT_STREQ(text, "3");
}

TEST(Dims, CalculateAsIntegersDo) {
  const Tensor x = ones({7, 2});
  Dim n = x.dim(0);
  EXPECT_EQ(n / 2, 3);
  EXPECT_EQ(-n / 2, -3);
  EXPECT_EQ(n % 4, 3);
  EXPECT_EQ(1 - n, -6);
  EXPECT_EQ(30 / n, 4);
  EXPECT_EQ(n * sizeof(float), 28);
  EXPECT_EQ(0.5 * n, 3.5);
  EXPECT_EQ(n / 2.0, 3.5);
  EXPECT_EQ(std::sqrt(double(x.dim(1)) + 2), 2);
  EXPECT_TRUE(n > 6 && 8U > n && n != 6 && 7 == n && n >= x.dim(1) && n < 7.5);
  n += 1, n *= 3, n -= 4, n /= 2, n %= 7, ++n, --n;
  EXPECT_EQ(n, 3);
  std::int64_t total = 0;
  total += x.dim(0);
  EXPECT_EQ(total, 7);
  EXPECT_THROW(static_cast<void>(n / 0), InvalidArgumentError);
  EXPECT_THROW(static_cast<void>(Dim(INT64_MAX) * n), ShapeError);
}

TEST(Dims, AreWhatShapesConsistOf) {
  const Shape shape = ones({2, 3, 4}).shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>()), 24);
  std::int64_t sum = 0;
  for (std::int64_t size : shape) sum += size;
  for (const auto& size : shape) sum += size;
  EXPECT_EQ(sum, 18);
  EXPECT_EQ(shape.end() - shape.begin(), 3);
  EXPECT_EQ(Shape({shape[0], 5}), (Shape{2, 5}));
  EXPECT_EQ(shape.dims(), (Dims{2, 3, 4}));
  const InputSpec spec = {Shape{-1, 3}, float32};
  EXPECT_EQ(spec.shape[0], -1);
}

TEST(Dims, ThatAreUnknownThrowAsNumbers) {
  const auto expect_refused = [](const std::function<void(const Tensor&)>& body) {
    expect_parts(error_in_trace(body), {"axis 0 of 'args_0'", "not known before the graph runs"});
  };
  expect_refused([](const Tensor& x) { static_cast<void>(std::int64_t(x.dim(0))); });
  expect_refused([](const Tensor& x) { static_cast<void>(0.5 * x.dim(0)); });
  expect_refused([](const Tensor& x) { static_cast<void>(std::vector<float>(x.dim(0))); });
  expect_refused([](const Tensor& x) { static_cast<void>(x.shape().dims()); });
  expect_refused([](const Tensor& x) { static_cast<void>(constant({x.dim(0), Dim(1)})); });
  expect_refused([](const Tensor& x) { static_cast<void>(x.dim(0) > 2); });
  expect_refused([](const Tensor& x) { static_cast<void>(x.dim(0) == x.dim(1)); });
  expect_refused([](const Tensor& x) {
    for (int i = 0; i < x.dim(0); ++i) ADD_FAILURE();
  });
  expect_refused([](const Tensor& x) { static_cast<void>(x * double(x.dim(0))); });
}

TEST(Dims, CompareWhereAllRunsAgree) {
  traced(
      [](const Tensor& x) {
        const Dim n = x.dim(0);
        EXPECT_FALSE(n.known());
        EXPECT_TRUE(n == x.dim(0) && n >= 0 && n + 1 > n && n - 1 < n && n + 1 > 0 && n > -1);
        EXPECT_TRUE(n != n + 1 && n * 2 != 7 && (n + 2) - 2 == n && n * 2 / 2 == n);
        return x;
      },
      ones({2, 3}));
}

TEST(Dims, PrintTheirExpression) {
  std::ostringstream text;
  text << ones({2}).dim(0);
  traced(
      [&](const Tensor& x) {
        text << ' ' << x.dim(0) << ' ' << x.dim(1) * 2 + 1 << ' ' << x.shape();
        return x;
      },
      ones({2, 3}));
  EXPECT_EQ(text.str(), "2 axis 0 of 'args_0' (2 * axis 1 of 'args_0' + 1) (?, ?)");
}

TEST(Dims, BecomeTensorsBesideTensors) {
  const std::vector<std::function<Tensor(const Tensor&)>> programs = {
      [](const Tensor& x) { return reduce_sum(x) / x.dim(0); },
      [](const Tensor& x) { return x.sum() / x.numel(); },
      [](const Tensor& x) { return x.dim(1) - x * x.dim(0); },
      [](const Tensor& x) { return x.dim(1) / (x + 1) + x.dim(0); },
      [](const Tensor& x) { return maximum(x, x.dim(0) - 2) + minimum(x, x.dim(1)); },
      [](const Tensor& x) { return cast((x > x.dim(0)) == (x.dim(1) <= x), float32); },
      [](const Tensor& x) {
        return full({2, x.dim(0)}, x.dim(1));
      },
      [](const Tensor& x) { return cast(constant(x.dim(0) * x.dim(1)), float32); },
      [](const Tensor& x) { return x * (x.dim(0) - 4) + cast(constant(3 - x.dim(0)), float32); },
      [](const Tensor& x) {
        return constant(x.dim(0), {.dtype = float32, .shape = {2, 2}});
      },
      [](const Tensor& x) { return x.add(x.dim(0)).sub(x.dim(1)).mul(x.dim(0)).div(x.dim(1)); },
      [](const Tensor& x) { return x.clamp(0, x.dim(0) - 2) + x.clamp(x.dim(0) - 5, 0.5); },
      [](const Tensor& x) { return clip_by_value(x, x.dim(1) - 4, x.dim(1) - 2); },
      [](const Tensor& x) { return x.clamp_min(x.dim(0) - 5) + x.clamp_max(x.dim(1)); },
      [](const Tensor& x) {
        const Tensor y = floor(x * 2.0);  // powers of others are rounded differently
        return y.pow(x.dim(1)) + pow(x.dim(0), abs(y)) + pow(y, x.dim(0));
      },
      [](const Tensor& x) { return x.masked_fill(x.ge(x.dim(0) - 5), x.dim(1)); },
      [](const Tensor& x) { return where(x > 0.0, x, x.dim(0)) + where(x > 1.0, x.dim(1), x); },
      [](const Tensor& x) { return floor_divide(x * 9.0, x.dim(0)); },
      [](const Tensor& x) {
        const Tensor y = floor(x * 3.0) + x.dim(0);
        return cast((x.dim(0) == y) == y.ne(x.dim(0)), float32) + cast(x.dim(0) != y, float32) +
               cast(y.eq(x.dim(0)), float32) + cast(y.lt(x.dim(0)), float32) +
               cast(y.le(x.dim(0)), float32) + cast(y.gt(x.dim(0)), float32);
      },
      [w = Variable(ones({4, 3}))](const Tensor& x) {
        return x / w.dim(0) + (w.size(0) > 2 ? x.dim(0) : w.numel()) + max(w.dim(1), x.dim(0));
      },
      [](const Tensor& x) {
        Tensor y = x;
        y += x.dim(0);
        y /= x.dim(1);
        return y % x.dim(0);
      },
  };
  for (const auto& program : programs)
    for (const std::int64_t rows : {2, 5}) {
      const Tensor x = random::normal({rows, 3});
      const Tensor expected = program(x), got = traced(program, x);
      EXPECT_EQ(got.shape(), expected.shape());
      EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
    }
  EXPECT_THROW(traced([](const Tensor& x) { return x + x.dim(0); }, zeros({300, 1}, uint8)),
               InvalidArgumentError);
}

TEST(Dims, AreAcceptedWhereSizesAre) {
  const std::vector<std::function<Tensor(const Tensor&)>> programs = {
      [](const Tensor& x) {
        return reshape(x, {x.dim(0), -1, 1});
      },
      [](const Tensor& x) { return x.view({x.dim(0) * x.dim(1)}); },
      [](const Tensor& x) {
        return zeros({x.dim(0), 4});
      },
      [](const Tensor& x) { return cast(range(x.dim(0)), float32); },
      [](const Tensor& x) { return range(2, x.dim(0) + 4, {.dtype = float32}); },
      [](const Tensor& x) { return range(x.dim(0), x.dim(0) * 2, {.dtype = float32}); },
      [](const Tensor& x) { return range(x.dim(0) - 4, x.dim(0), {.dtype = float32}); },
      [](const Tensor& x) { return cast(arange(x.dim(0)) + arange(1, x.dim(0) + 1), float32); },
      [](const Tensor& x) { return linspace(0, 1, x.dim(0) + 1); },
      [](const Tensor& x) { return eye(x.dim(0), x.dim(1)); },
      [](const Tensor& x) {
        return broadcast_to(ones({1, 2}), {x.dim(0), 2});
      },
      [](const Tensor& x) {
        return x(Slice{0, x.dim(0) - 1});
      },
      [](const Tensor& x) {
        return x(Slice{1, {}}, x.dim(1) - 1);
      },
      [](const Tensor& x) { return x[x.dim(0) - 1]; },
      [](const Tensor& x) { return x.slice(1, 1, x.dim(1)); },
      [](const Tensor& x) { return x.narrow(0, 1, x.dim(0) - 1); },
      [](const Tensor& x) { return x.select(1, x.dim(1) - 2); },
      [](const Tensor& x) {
        return slice(x, {1, 0}, {x.dim(0) - 1, 2});
      },
      [](const Tensor& x) {
        return tile(x, {x.dim(1), 2});
      },
      [](const Tensor& x) {
        return pad(x, {{0, 8 - x.dim(0)}, {1, x.dim(1)}});
      },
      [](const Tensor& x) {
        return split(x, {x.dim(0) - 1, 1})[0];
      },
      [](const Tensor& x) {
        return one_hot(constant({0, 1}), x.dim(1));
      },
      [](const Tensor& x) {
        return cast(cast(random::permutation(x.dim(0)), float32) * 0, float32);
      },
      [](const Tensor& x) { return cast(random::categorical(x, x.dim(0)) + 1, float32) * 0.0; },
      [](const Tensor& x) { return unsorted_segment_sum(x, range(x.dim(0)), x.dim(0) * 2); },
      [](const Tensor& x) { return zeros({numel(x)}); },
  };
  int number = 0;
  for (const auto& program : programs) {
    SCOPED_TRACE(number++);
    for (const std::int64_t rows : {2, 5}) {
      const Tensor x = random::normal({rows, 3});
      const Tensor expected = program(x), got = traced(program, x);
      EXPECT_EQ(got.shape(), expected.shape());
      EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
    }
  }
}

TEST(Dims, AreArgumentsOfFunctionsAsNumbersAre) {
  const auto f =
      function([](const Tensor& x, std::int64_t n) { return x * static_cast<double>(n); });
  EXPECT_EQ(f(ones({2}), ones({3}).dim(0)).to_vector<float>(), (std::vector<float>{3, 3}));
  expect_parts(error_in_trace([&](const Tensor& x) { f(x, x.dim(0)); }),
               {"axis 0 of 'args_0'", "not known before the graph runs"});
}

// Positions are computed from sizes, and may turn out to be negative.
TEST(Dims, CountFromTheEndAsPositionsDo) {
  const auto program = [](const Tensor& x) { return x(Slice{x.dim(0) - 5, x.dim(0) - 1}); };
  for (const std::int64_t rows : {2, 3, 5, 8}) {
    const Tensor x = random::normal({rows, 3});
    EXPECT_EQ(traced(program, x).to_vector<float>(), program(x).to_vector<float>()) << rows;
  }
}

TEST(Dims, OfARunThatHaveNoValueAreErrorsOfTheRun) {
  const auto f = function([](const Tensor& x) { return zeros({6 / x.dim(0)}); },
                          {.input_signature = {{Shape{-1}}}});
  EXPECT_EQ(f(ones({4})).shape(), Shape({1}));
  EXPECT_THROW(f(ones({0})), ShapeError);
  const auto g = function([](const Tensor& x) { return zeros({x.dim(0) - 3}); },
                          {.input_signature = {{Shape{-1}}}});
  EXPECT_EQ(g(ones({3})).shape(), Shape({0}));
  expect_parts(error_of<ShapeError>([&] { g(ones({2})); }), {"axis 0 of 'args_0'", "-1"});
}

}  // namespace
}  // namespace tandem::dims_test
