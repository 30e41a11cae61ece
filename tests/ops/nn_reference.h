// Compares other dtypes with float64, whose gradients are checked by central differences.
#pragma once

#include "support/gradient_check.h"
#include "tandem/nn.h"

namespace tandem::testing {

// Expects `f` of the inputs rounded to `dtype`, and its gradients, to equal those in float64 of the
// same numbers. Only float64 inputs are rounded; others are passed unchanged.
inline void expect_like_float64(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                DType dtype, double tolerance) {
  SCOPED_TRACE(::testing::Message() << name_of(dtype));
  const auto run_in = [&](DType type) {
    std::vector<Tensor> arguments, sources;
    GradientTape tape;
    for (const Tensor& input : inputs) {
      const bool rounds = input.dtype() == float64;
      arguments.push_back(rounds ? cast(cast(input, dtype), type) : input);
      if (!rounds) continue;
      tape.watch(arguments.back());
      sources.push_back(arguments.back());
    }
    const Tensor y = f(arguments);
    const Tensor weights = cast(cast(random_tensor(y.shape(), 4711, 0.5, 1.5), dtype), y.dtype());
    std::vector<Tensor> results = tape.gradient(y, sources, {.output_gradient = weights});
    results.insert(results.begin(), y);
    return results;
  };
  const std::vector<Tensor> actual = run_in(dtype), expected = run_in(float64);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "result" : "gradient " + std::to_string(i - 1));
    ASSERT_EQ(actual[i].defined(), expected[i].defined());
    if (!expected[i].defined()) continue;
    EXPECT_EQ(actual[i].dtype(), dtype);
    expect_tensor(cast(actual[i], float64), float64, expected[i].shape(), values_of(expected[i]),
                  tolerance);
  }
}

// float32, float16 and bfloat16, each to `units` of its precision.
inline void expect_other_dtypes_like_float64(const TensorFunction& f,
                                             const std::vector<Tensor>& inputs,
                                             double units = 8.0) {
  for (const DType dtype : {float32, float16, bfloat16})
    expect_like_float64(f, inputs, dtype, units * epsilon_of(dtype));
}

}  // namespace tandem::testing
