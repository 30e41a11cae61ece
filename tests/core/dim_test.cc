#include "core/dim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/size_table.h"
#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::dim_test {
namespace {

using testing::error_of;

class Dim : public ::testing::Test {
 protected:
  const std::shared_ptr<SizeTable> sizes = SizeTable::make();
  const std::int64_t n = sizes->symbol("n"), m = sizes->symbol("m"), k = sizes->symbol("k");
};

TEST_F(Dim, EqualExpressionsAreEqualNumbers) {
  EXPECT_EQ(dim::difference(dim::sum(n, 2), 2), n);
  EXPECT_EQ(dim::product(n, m), dim::product(m, n));
  EXPECT_EQ(dim::product(dim::sum(n, 1), dim::difference(n, 1)),
            dim::difference(dim::product(n, n), 1));
  EXPECT_EQ(dim::difference(n, n), 0);
  EXPECT_EQ(dim::product(n, 0), 0);
  EXPECT_EQ(dim::quotient(dim::product(n, dim::sum(m, 1)), dim::sum(m, 1)), n);
  EXPECT_EQ(dim::quotient(dim::product(6, n), 3), dim::sum(n, n));
  EXPECT_EQ(dim::floor_quotient(dim::sum(dim::product(n, 2), 1), 2), n);
  EXPECT_EQ(dim::ceil_quotient(dim::product(n, 4), 4), n);
  EXPECT_EQ(dim::max(0, n), n);
  EXPECT_EQ(dim::min(dim::sum(n, 3), n), n);
  EXPECT_EQ(dim::min(dim::min(n, m), k), dim::min(m, dim::min(k, n)));
  EXPECT_EQ(dim::broadcast(dim::broadcast(n, m), k), dim::broadcast(m, dim::broadcast(k, n)));
  EXPECT_EQ(dim::broadcast(n, 1), n);
  EXPECT_EQ(dim::broadcast(1, n), n);
  EXPECT_EQ(dim::broadcast(n, 4), 4);
  EXPECT_EQ(dim::broadcast(n, dim::sum(m, 2)), dim::sum(m, 2));
  EXPECT_EQ(dim::num_elements({n, 2, m}), dim::product(2, dim::product(m, n)));
}

TEST_F(Dim, RefusesOnlyWhatCannotHold) {
  EXPECT_TRUE(dim::may_equal(n, m));
  EXPECT_TRUE(dim::may_equal(n, 5));
  EXPECT_FALSE(dim::may_equal(n, dim::sum(n, 1)));
  EXPECT_FALSE(dim::may_equal(dim::sum(n, 3), 2));
  EXPECT_FALSE(dim::may_equal(dim::product(n, 2), 7));
  EXPECT_TRUE(dim::may_equal(Shape{n, 3}, Shape{2, m}));
  EXPECT_FALSE(dim::may_equal(Shape{n, 3}, Shape{2, 4}));
  EXPECT_FALSE(dim::may_equal(Shape{n}, Shape{n, 1}));
  EXPECT_TRUE(dim::may_be_at_most(n, 0));
  EXPECT_FALSE(dim::may_be_at_most(dim::sum(n, 1), n));
  EXPECT_TRUE(dim::may_be_at_most(0, n));
  EXPECT_FALSE(dim::may_be_at_most(0, -1));
  EXPECT_TRUE(dim::may_be_multiple(n, 3));
  EXPECT_FALSE(dim::may_be_multiple(dim::sum(dim::product(n, 3), 1), 3));
  EXPECT_FALSE(dim::may_be_multiple(n, 0));
  EXPECT_TRUE(dim::may_broadcast(n, 4));
  EXPECT_FALSE(dim::may_broadcast(dim::sum(n, 5), 4));
  EXPECT_EQ(dim::agreed(n, 4), 4);
  EXPECT_EQ(dim::agreed(n, m), n);
}

TEST_F(Dim, NamesSizesAsTheUserKnowsThem) {
  EXPECT_EQ(dim::text(5), "5");
  EXPECT_EQ(dim::text(n), "n");
  EXPECT_EQ(dim::text(dim::sum(dim::product(n, 3), -2)), "(3 * n - 2)");
  EXPECT_EQ(dim::text(dim::ceil_quotient(n, 2)), "floor((n + 1) / 2)");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { dim::known("Op", n, "the rank"); }),
            "[Op] expected n to be known when the graph is made, because the rank depends on it");
  EXPECT_EQ(dim::known("Op", 3, "the rank"), 3);
}

TEST_F(Dim, NumbersThatWereComputedByPlainArithmeticAreRefused) {
  for (const std::int64_t number : {n + 1, 2 * n, n + m, n / 2, 3 * n})
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { dim::sum(number, 1); }),
              "[Shape] a number was computed from a size that is not known when the graph is made");
  const auto others = SizeTable::make();
  EXPECT_THROW(dim::sum(n, others->symbol("other")), InvalidArgumentError);
  std::int64_t gone = 0;
  gone = SizeTable::make()->symbol("gone");
  EXPECT_THROW(dim::sum(gone, 1), InvalidArgumentError);
}

TEST_F(Dim, HasLimits) {
  std::int64_t nested = n;
  EXPECT_THROW(for (int i = 0; i < 5000; ++i) nested = dim::floor_quotient(dim::sum(nested, m), 7),
               InvalidArgumentError);
  std::int64_t power = n;
  EXPECT_THROW(for (int i = 0; i < 100; ++i) power = dim::product(power, n), ShapeError);
  EXPECT_THROW(dim::product(dim::product(n, INT64_MAX / 2), 4), ShapeError);
  std::vector<std::int64_t> values = {INT64_MAX / 2};
  EXPECT_THROW(sizes->evaluate(dim::product(n, 4), values), ShapeError);
}

TEST_F(Dim, ExpressionsWithoutAValueThrow) {
  std::vector<std::int64_t> values = {2, 5, 1};
  EXPECT_EQ(sizes->evaluate(dim::broadcast(n, k), values), 2);
  EXPECT_EQ(
      error_of<ShapeError>([&] { sizes->evaluate(dim::broadcast(n, m), values); }).substr(0, 44),
      "[Shape] expected sizes that broadcast togeth");
  EXPECT_EQ(error_of<ShapeError>([&] { sizes->evaluate(dim::quotient(m, n), values); }),
            "[Shape] expected a multiple of n, which is 2, got m, which is 5");
  std::vector<std::int64_t> none;
  EXPECT_EQ(sizes->evaluate(dim::sum(n, m), none), SizeTable::kUnset);
}

// A size in an expression, and its number if the symbols have values.
struct Sized {
  std::int64_t size, number;
};

// Applies a random operation that holds for the numbers.
std::optional<Sized> combined(const Sized& a, const Sized& b, unsigned op) {
  switch (op) {
    case 0: return Sized{dim::sum(a.size, b.size), a.number + b.number};
    case 1: return Sized{dim::difference(a.size, b.size), a.number - b.number};
    case 2: return Sized{dim::product(a.size, b.size), a.number * b.number};
    case 3: return Sized{dim::min(a.size, b.size), std::min(a.number, b.number)};
    case 4: return Sized{dim::max(a.size, b.size), std::max(a.number, b.number)};
    case 5:
      if (b.number <= 0) return {};
      return Sized{dim::floor_quotient(a.size, b.size),
                   a.number / b.number - (a.number % b.number < 0 ? 1 : 0)};
    case 6:
      if (b.number <= 0 || a.number % b.number != 0) return {};
      EXPECT_TRUE(dim::may_be_multiple(a.size, b.size));
      return Sized{dim::quotient(a.size, b.size), a.number / b.number};
    case 7: {
      const double factor = 0.1 * static_cast<double>(1 + std::abs(b.number) % 30);
      return Sized{dim::scaled(a.size, factor),
                   static_cast<std::int64_t>(std::floor(static_cast<double>(a.number) * factor))};
    }
    default:
      if (std::min(a.number, b.number) < 0 ||
          (a.number != b.number && a.number != 1 && b.number != 1))
        return {};
      EXPECT_TRUE(dim::may_broadcast(a.size, b.size));
      return Sized{dim::broadcast(a.size, b.size), a.number == 1 ? b.number : a.number};
  }
}

TEST(RandomSizes, EqualPlainArithmetic) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const auto sizes = SizeTable::make();
    std::vector<Sized> made;
    std::vector<std::int64_t> symbols;
    for (std::int64_t i = 0; i < 3; ++i) {
      symbols.push_back(random() % 6);
      made.push_back({sizes->symbol("s"), symbols.back()});
      made.push_back({i, i});
    }
    for (int step = 0; step < 8; ++step) {
      const auto next =
          combined(made[random() % made.size()], made[random() % made.size()], random() % 9);
      if (!next || std::abs(next->number) > 1'000'000) continue;
      std::vector<std::int64_t> values = symbols;
      ASSERT_EQ(dim::is_unknown(next->size) ? sizes->evaluate(next->size, values) : next->size,
                next->number)
          << dim::text(next->size);
      for (const Sized& other : made) {
        EXPECT_TRUE(other.number != next->number || dim::may_equal(other.size, next->size));
        EXPECT_TRUE(other.number > next->number || dim::may_be_at_most(other.size, next->size));
      }
      made.push_back(*next);
    }
  }
}

// The same with the operators of the public Dim, whose quotients round toward zero.
struct SizedDim {
  tandem::Dim size;
  std::int64_t number;
};

std::optional<SizedDim> combined(const SizedDim& a, const SizedDim& b, unsigned op) {
  if ((op == 3 || op == 4) && b.number <= 0) return {};
  switch (op) {
    case 0: return SizedDim{a.size + b.size, a.number + b.number};
    case 1: return SizedDim{a.size - b.size, a.number - b.number};
    case 2: return SizedDim{a.size * b.size, a.number * b.number};
    case 3: return SizedDim{a.size / b.size, a.number / b.number};
    case 4: return SizedDim{a.size % b.size, a.number % b.number};
    case 5: return SizedDim{min(a.size, b.size), std::min(a.number, b.number)};
    default: return SizedDim{max(a.size, b.size), std::max(a.number, b.number)};
  }
}

// A comparison is right, or refused because it differs between runs.
void expect_comparisons(const SizedDim& a, const SizedDim& b) {
  const auto is = [](const auto& compare, bool expected) {
    try {
      EXPECT_EQ(compare(), expected);
    } catch (const InvalidArgumentError&) {
    }
  };
  is([&] { return a.size < b.size; }, a.number < b.number);
  is([&] { return a.size >= b.size; }, a.number >= b.number);
  is([&] { return a.size == b.size; }, a.number == b.number);
}

TEST(RandomSizes, OfThePublicDimEqualPlainArithmetic) {
  std::mt19937 random(2);
  int expressions = 0;
  while (expressions < 20'000) {
    const auto sizes = SizeTable::make();
    std::vector<SizedDim> made;
    std::vector<std::int64_t> symbols;
    for (std::int64_t i = 0; i < 3; ++i) {
      symbols.push_back(random() % 6);
      made.push_back({sizes->symbol("s"), symbols.back()});
      made.push_back({i, i});
    }
    for (int step = 0; step < 8; ++step) {
      const SizedDim &a = made[random() % made.size()], &b = made[random() % made.size()];
      expect_comparisons(a, b);
      const auto next = combined(a, b, random() % 7);
      if (!next || std::abs(next->number) > 1'000'000) continue;
      std::vector<std::int64_t> values = symbols;
      const std::int64_t word = next->size.word();
      ASSERT_EQ(next->size.known() ? word : sizes->evaluate(word, values), next->number)
          << next->size;
      made.push_back(*next);
      ++expressions;
    }
  }
}

}  // namespace
}  // namespace tandem::dim_test
