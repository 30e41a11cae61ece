#include "tandem/shape.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::shape_test {
namespace {

using testing::error_of;

TEST(Shape, PrintsAsNumPy) {
  EXPECT_EQ(Shape::scalar().to_string(), "()");
  EXPECT_EQ(Shape({3}).to_string(), "(3,)");
  EXPECT_EQ(Shape({2, 3}).to_string(), "(2, 3)");
  EXPECT_EQ(Shape({-1, 3}).to_string(), "(?, 3)");
  EXPECT_EQ(Shape().to_string(), "<unknown>");
  std::ostringstream out;
  out << Shape({2, 0});
  EXPECT_EQ(out.str(), "(2, 0)");
}

TEST(Shape, IsUnknownPartlyKnownOrFullyDefined) {
  EXPECT_FALSE(Shape().known());
  EXPECT_FALSE(Shape().fully_defined());
  EXPECT_TRUE(Shape({-1}).known());
  EXPECT_FALSE(Shape({2, -1}).fully_defined());
  EXPECT_TRUE(Shape({2, 0}).fully_defined());
  EXPECT_TRUE(Shape::scalar().fully_defined());
  EXPECT_NE(Shape(), Shape::scalar());
  EXPECT_EQ(Shape::scalar().num_elements(), 1);
  EXPECT_EQ(Shape({2, 0}).num_elements(), 0);
}

TEST(Shape, AxesCountFromBothEnds) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.dim(0), 2);
  EXPECT_EQ(shape.dim(2), 5);
  EXPECT_EQ(shape.dim(-1), 5);
  EXPECT_EQ(shape.dim(-3), 2);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { static_cast<void>(shape[3]); }),
            "[Shape] expected an axis in [-3, 3) of shape (2, 3, 5), got 3");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { shape.dim(3); }),
            "[Shape] expected an axis in [-3, 3) of shape (2, 3, 5), got 3");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { shape.dim(-4); }),
            "[Shape] expected an axis in [-3, 3) of shape (2, 3, 5), got -4");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { Shape().dim(0); }),
            "[Shape] expected a known rank, got axis 0 of <unknown>");
}

TEST(Shape, LeadingAxesAreAddedAndRemoved) {
  EXPECT_EQ(Shape({2, 3}).without_leading(1), Shape({3}));
  EXPECT_EQ(Shape({2, 3}).without_leading(2), Shape::scalar());
  EXPECT_EQ(Shape({2, 3}).with_leading(7), Shape({7, 2, 3}));
  EXPECT_THROW(Shape({2}).without_leading(2), InternalError);
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              Shape({1, 1, 1, 1, 1, 1, 1, 1}).with_leading(1);
            }),
            "[Shape] expected at most 8 axes, got 9");
}

TEST(Shape, MatchesShapesThatAreMoreDefined) {
  EXPECT_TRUE(Shape().matches(Shape({2, 3})));
  EXPECT_TRUE(Shape({-1, 3}).matches(Shape({2, 3})));
  EXPECT_FALSE(Shape({-1, 3}).matches(Shape({2, 4})));
  EXPECT_FALSE(Shape({-1}).matches(Shape({2, 3})));
  EXPECT_FALSE(Shape({-1}).matches(Shape()));
}

TEST(Shape, MayAgreeUnlessKnownSizesDiffer) {
  EXPECT_TRUE(may_agree(Shape({-1, 3}), Shape({-7, 3})));
  EXPECT_TRUE(may_agree(Shape({-1, 3}), Shape({2, -1})));
  EXPECT_TRUE(may_agree(Shape({2, 3}), Shape()));
  EXPECT_TRUE(may_agree(Shape(), Shape({2, 3})));
  EXPECT_FALSE(may_agree(Shape({-1, 3}), Shape({2, 4})));
  EXPECT_FALSE(may_agree(Shape({-1}), Shape({-1, -1})));
  EXPECT_FALSE(may_agree(Shape({-1}), Shape::scalar()));
}

TEST(Shape, CountsElementsWithoutOverflow) {
  const std::int64_t large = std::int64_t{1} << 32;
  EXPECT_EQ(Shape({large, large >> 5}).num_elements(), large * (large >> 5));
  EXPECT_EQ(Shape({kMaxElements}).num_elements(), kMaxElements);
  for (const Shape& shape : {Shape{kMaxElements + 1}, Shape{large, large}, Shape{large, large, 0},
                             Shape{0, large, large}, Shape{large, large, -1}}) {
    EXPECT_TRUE(shape.too_large());
    EXPECT_EQ(
        error_of<InvalidArgumentError>([&] { shape.num_elements(); }),
        "[Shape] expected at most 1152921504606846975 elements, got shape " + shape.to_string());
  }
  EXPECT_FALSE(Shape({-1, large}).too_large());
  EXPECT_FALSE(Shape().too_large());
  EXPECT_EQ(Shape({large, 0}).num_elements(), 0);
}

TEST(Dims, HoldAtMostEight) {
  Dims dims{1, 2, 3};
  for (int i = 4; i <= kMaxRank; ++i) dims.push_back(i);
  EXPECT_EQ(dims.size(), 8);
  EXPECT_EQ(dims[7], 8);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { dims.push_back(9); }),
            "[Shape] expected at most 8 axes, got 9");
  const std::vector<std::int64_t> ten(10);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { Dims{std::span(ten)}; }),
            "[Shape] expected at most 8 axes, got 10");
  EXPECT_EQ(Dims({1, 2}), Dims({1, 2}));
  EXPECT_FALSE(Dims({1, 2}) == Dims({1, 2, 3}));
}

}  // namespace
}  // namespace tandem::shape_test
