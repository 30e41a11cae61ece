// Compares numbers within a tolerance.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem::testing {

// The tolerance is relative to the expected number, or absolute if that is below 1.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                         double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * std::fmax(1.0, std::fabs(expected[i]))) << i;
}

}  // namespace tandem::testing
