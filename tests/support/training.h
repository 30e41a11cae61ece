// Results of training, which tests compare.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/variable.h"

namespace tandem::testing {

struct Trained {
  std::vector<std::vector<float>> weights;
  std::vector<float> losses;
};

// The elements of each variable.
inline std::vector<std::vector<float>> elements_of(const std::vector<Variable>& variables) {
  std::vector<std::vector<float>> elements;
  for (const Variable& variable : variables)
    elements.push_back(variable.value().to_vector<float>());
  return elements;
}

// Expects weights and losses that differ by 1e-5 of their size at most; weights by `more`, too.
inline void expect_same(const Trained& a, const Trained& b, float more = 1e-7f) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    ASSERT_EQ(a.weights[i].size(), b.weights[i].size());
    for (std::size_t k = 0; k < a.weights[i].size(); ++k)
      EXPECT_NEAR(a.weights[i][k], b.weights[i][k], 1e-5f * std::abs(a.weights[i][k]) + more);
  }
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5f * a.losses[i]);
}

}  // namespace tandem::testing
