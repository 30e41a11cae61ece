// Compares elements with numbers that may be infinite or NaN.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/tensors.h"
#include "tandem/math.h"

namespace tandem::testing {

// As expect_tensor(), also of NaN and infinities.
inline void expect_values(const Tensor& y, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> actual = values_of(cast(y, float64));
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(actual[i])) << i << " is " << actual[i];
    else if (std::isinf(expected[i]))
      EXPECT_EQ(actual[i], expected[i]) << i;
    else
      EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << i;
}

}  // namespace tandem::testing
