// Compares gradients with central differences, in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "support/tensors.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem::testing {

using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;

struct GradientCheckOptions {
  double step = 1e-5;
  double tolerance = 1e-6;  // relative; absolute below 1
};

namespace gradient_check_detail {

// A scalar that depends on every element of `y`, with different weights.
inline Tensor weigh(const Tensor& y) {
  const Tensor weights =
      constant(random_values(y.size(), 4711, 0.5, 1.5), {.dtype = y.dtype(), .shape = y.shape()});
  return reduce_sum(y * weights);
}

inline bool is_checked(const Tensor& input) { return input.dtype() == float64; }

// d weigh(f(inputs)) / d inputs[which], by central differences.
inline std::vector<double> numeric_gradient(const TensorFunction& f,
                                            const std::vector<Tensor>& inputs, std::size_t which,
                                            double step) {
  const std::vector<double> values = values_of(inputs[which]);
  const auto loss_at = [&](std::size_t element, double value) {
    std::vector<double> moved = values;
    moved[element] = value;
    std::vector<Tensor> arguments = inputs;
    arguments[which] = constant(moved, {.shape = inputs[which].shape()});
    return weigh(f(arguments)).item<double>();
  };
  std::vector<double> gradient;
  for (std::size_t i = 0; i < values.size(); ++i)
    gradient.push_back((loss_at(i, values[i] + step) - loss_at(i, values[i] - step)) /
                       (2.0 * step));
  return gradient;
}

inline void compare(const Tensor& gradient, const std::vector<double>& numeric, const Tensor& input,
                    std::size_t which, const char* api, double tolerance) {
  SCOPED_TRACE(::testing::Message() << "gradient of input " << which << " by " << api);
  if (!gradient.defined()) {
    for (double value : numeric) EXPECT_NEAR(value, 0.0, tolerance) << "no gradient came";
    return;
  }
  expect_tensor(gradient, input.dtype(), input.shape(), numeric, tolerance);
}

}  // namespace gradient_check_detail

// Checks the gradient of `f` with respect to every float64 input, with GradientTape and with
// backward(). Other inputs (indices, masks) are constants. `f` must be smooth around the inputs and
// return a float64 tensor.
inline void expect_gradients(const TensorFunction& f, const std::vector<Tensor>& inputs,
                             const GradientCheckOptions& options = {}) {
  namespace detail = gradient_check_detail;
  std::vector<Tensor> watched;
  for (const Tensor& input : inputs)
    if (detail::is_checked(input)) watched.push_back(input);

  std::vector<Tensor> by_tape;
  {
    GradientTape tape;
    for (const Tensor& input : watched) tape.watch(input);
    by_tape = tape.gradient(detail::weigh(f(inputs)), watched);
  }
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.detach());
    if (detail::is_checked(input)) leaves.back().set_requires_grad();
  }
  detail::weigh(f(leaves)).backward();

  std::size_t checked = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!detail::is_checked(inputs[i])) continue;
    const auto numeric = detail::numeric_gradient(f, inputs, i, options.step);
    detail::compare(by_tape[checked++], numeric, inputs[i], i, "GradientTape", options.tolerance);
    detail::compare(leaves[i].grad(), numeric, inputs[i], i, "backward()", options.tolerance);
  }
  EXPECT_GT(checked, 0u) << "no float64 input: nothing was checked";
}

// Checks second derivatives: the gradients of f's gradients.
inline void expect_second_order(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                const GradientCheckOptions& options = {}) {
  namespace detail = gradient_check_detail;
  const TensorFunction gradients = [&f](const std::vector<Tensor>& arguments) {
    GradientTape tape({.persistent = true});  // records its gradients for backward()
    std::vector<Tensor> sources;
    for (const Tensor& argument : arguments) {
      if (!detail::is_checked(argument)) continue;
      tape.watch(argument);
      sources.push_back(argument);
    }
    Tensor sum;
    for (const Tensor& gradient : tape.gradient(detail::weigh(f(arguments)), sources)) {
      if (!gradient.defined()) continue;
      const Tensor part = detail::weigh(gradient);
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  };
  expect_gradients(gradients, inputs, options);
}

}  // namespace tandem::testing
