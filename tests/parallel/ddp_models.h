// Models and data for tests of distributed data parallel training.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/tandem.h"

namespace tandem::testing {

using Weights = std::vector<std::vector<float>>;

inline Weights weights_of(const Model& model) {
  Weights weights;
  for (const Variable& variable : model.variables())
    weights.push_back(variable.value().to_vector<float>());
  return weights;
}

// Tolerance: `relative` times the largest element of each tensor.
inline void expect_near(const Weights& a, const Weights& b, double relative = 1e-5) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t v = 0; v < a.size(); ++v) {
    ASSERT_EQ(a[v].size(), b[v].size());
    double largest = 0;
    for (float value : b[v]) largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (std::size_t i = 0; i < a[v].size(); ++i)
      EXPECT_NEAR(a[v][i], b[v][i], relative * largest) << "variable " << v << ", element " << i;
  }
}

inline void expect_close(const Tensor& a, const Tensor& b, double relative = 1e-5) {
  expect_near({a.to_vector<float>()}, {b.to_vector<float>()}, relative);
}

inline Sequential perceptron(std::uint64_t seed) {
  random::set_seed(seed);
  return Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                     layers::Dense(8, {.activation = "tanh"}), layers::Dense(3)});
}

struct Examples {
  Tensor x, y;
  std::int64_t size() const { return x.dim(0); }
  Examples rows(std::int64_t begin, std::int64_t end) const {
    return {slice_rows(x, begin, end), slice_rows(y, begin, end)};
  }
};

inline Examples examples(std::int64_t count, std::uint64_t seed = 9) {
  random::set_seed(seed);
  const Tensor x = random::normal({count, 6});
  return {x, argmax(slice(x, {0, 0}, {-1, 3}), 1)};
}

inline Tensor loss_of(const Tensor& logits, const Tensor& y) {
  return reduce_mean(nn::sparse_softmax_cross_entropy(y, logits));
}

// Two layers; `used` says which of them a call uses.
class TwoHeads final : public LayerBase {
 public:
  struct Used {
    bool first = true, second = true;
  };
  explicit TwoHeads(std::shared_ptr<Used> used) : LayerBase(""), used_(std::move(used)) {
    declare_input_shape({4});
  }
  std::string kind() const override { return "two_heads"; }
  std::vector<Layer> children() const override { return {first_, second_}; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override {
    const Tensor a = used_->first ? first_(inputs[0], options) : Tensor();
    const Tensor b = used_->second ? second_(inputs[0], options) : Tensor();
    if (!a.defined()) return b;
    return b.defined() ? a + b : a;
  }
  Shape output_shape(std::span<const Shape> shapes) const override {
    return first_.base().output_shape(shapes);
  }

 private:
  std::shared_ptr<Used> used_;
  Layer first_ = layers::Dense(2, {.name = "first"});
  Layer second_ = layers::Dense(2, {.name = "second"});
};

}  // namespace tandem::testing
