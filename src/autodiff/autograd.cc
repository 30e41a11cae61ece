// autograd::grad(): gradients of outputs with respect to inputs; jacobian(), hessian() and
// gradcheck().
#include "tandem/autograd.h"

#include <cmath>

#include "autodiff/engine.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"

namespace tandem {

std::vector<Tensor> autograd::grad(TensorList outputs, TensorList inputs,
                                   const GradOptions& options) {
  if (!options.grad_outputs.empty() && options.grad_outputs.size() != outputs.size())
    fail<InvalidArgumentError>("[grad] expected a gradient for each of {} outputs, got {}",
                               outputs.size(), options.grad_outputs.size());
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  BackwardPass pass{.retain_graph = options.retain_graph.value_or(options.create_graph),
                    .create_graph = options.create_graph};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorImpl& impl = impl_of(outputs[i]);
    if (is_constant(impl.grad))
      fail<FailedPreconditionError>(
          "[grad] output {} does not depend on a tensor that requires a gradient", i);
    Tensor seed = options.grad_outputs.empty() ? Tensor() : options.grad_outputs[i];
    if (!seed.defined()) {
      if (impl.shape.fully_defined() && impl.shape.num_elements() != 1)
        fail<ShapeError>("[grad] expected a scalar output or grad_outputs, got shape {}",
                         impl.shape.to_string());
      seed = ones_like(outputs[i].detach());
    }
    if (!may_agree(seed.shape(), impl.shape) || seed.dtype() != impl.dtype)
      fail<InvalidArgumentError>(
          "[grad] expected a gradient of shape {} and dtype {} for output {}, got {} and {}",
          impl.shape.to_string(), name_of(impl.dtype), i, seed.shape().to_string(),
          name_of(seed.dtype()));
    pass.roots.push_back({impl.grad, ensure_shape(seed, impl.shape)});
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_tracked(inputs[i]))
      fail<InvalidArgumentError>(
          "[grad] expected inputs that require gradients, but input {} does not", i);
    pass.sources.push_back(impl_of(inputs[i]).grad);
  }
  std::vector<Tensor> gradients = run_backward(pass);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined() && !options.allow_unused)
      fail<InvalidArgumentError>(
          "[grad] expected outputs that depend on all inputs, but not on input {}; allow_unused "
          "gives an undefined gradient",
          i);
  return gradients;
}

Tensor autograd::functional::jacobian(const std::function<Tensor(const Tensor& x)>& function,
                                      const Tensor& x) {
  GradientTape tape;
  tape.watch(x);
  const Tensor y = function(x);
  Dims both = y.shape().words();
  for (const std::int64_t size : x.shape().words()) both.push_back(size);
  const Tensor result = tape.jacobian(y, x);
  return result.defined() ? result : zeros(Shape(both), {.dtype = x.dtype()});
}

Tensor autograd::functional::hessian(const std::function<Tensor(const Tensor& x)>& function,
                                     const Tensor& x) {
  return jacobian(
      [&](const Tensor& at) {
        GradientTape tape;
        tape.watch(at);
        const Tensor y = function(at);
        if (y.rank() != 0 && !(y.shape().fully_defined() && y.shape().num_elements() == 1))
          fail<ShapeError>("[hessian] expected a function whose result is a scalar, got shape {}",
                           y.shape().to_string());
        return tape.gradient(y, at, {.unconnected_gradients = UnconnectedGradients::kZero});
      },
      x);
}

bool autograd::gradcheck(const std::function<Tensor(const std::vector<Tensor>& inputs)>& function,
                         const std::vector<Tensor>& inputs, const GradCheckOptions& options) {
  for (const Tensor& input : inputs)
    if (input.dtype() != float64)
      fail<DTypeError>("[gradcheck] expected inputs of float64, got {}", name_of(input.dtype()));
  std::vector<Tensor> detached;
  for (const Tensor& input : inputs) detached.push_back(input.detach());
  for (std::size_t which = 0; which < inputs.size(); ++which) {
    const auto of_one = [&](const Tensor& x) {
      std::vector<Tensor> arguments = detached;
      arguments[which] = x;
      return function(arguments);
    };
    const std::vector<double> start = detached[which].to_vector<double>();
    const std::size_t columns = start.size();
    const std::vector<double> derivatives =
        functional::jacobian(of_one, detached[which]).to_vector<double>();
    const auto value_at = [&](std::size_t column, double value) {
      std::vector<double> moved = start;
      moved[column] = value;
      const NoGradScope untracked;
      return of_one(constant(moved, {.shape = detached[which].shape()})).to_vector<double>();
    };
    for (std::size_t column = 0; column < columns; ++column) {
      const std::vector<double> above = value_at(column, start[column] + options.eps),
                                below = value_at(column, start[column] - options.eps);
      for (std::size_t row = 0; row < above.size(); ++row) {
        const double numeric = (above[row] - below[row]) / (2.0 * options.eps);
        const double given = derivatives[row * columns + column];
        if (std::abs(given - numeric) <= options.atol + options.rtol * std::abs(numeric)) continue;
        if (!options.raise_exception) return false;
        fail<FailedPreconditionError>(
            "[gradcheck] the derivative of element {} of the result with respect to element {} of "
            "input {} is {}, but differences give {}",
            row, column, which, given, numeric);
      }
    }
  }
  return true;
}

}  // namespace tandem
