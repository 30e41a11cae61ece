// The interface between the code that computes gradients (backward passes) and the code that
// reduces them over the ranks of a job.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/variable_impl.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// Synchronises the gradients of one backward pass of one rank. Not thread-safe. Every rank starts
// it with the same variables; gradient `index` belongs to variable `index`.
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // The tensor into which gradient `index` is best computed (see BackwardPass). Undefined if any
  // memory will do.
  virtual Tensor gradient_buffer(std::size_t index) {
    static_cast<void>(index);
    return {};
  }
  // Gradient `index` is final; undefined if this rank has none. A tensor that nothing else refers
  // to may be reduced in place. A bucket is launched as soon as all of its gradients are ready.
  virtual void ready(std::size_t index, Tensor gradient) = 0;
  // Waits for all buckets and returns the reduced gradients in the order of the variables, on the
  // devices of the rank's variables. A gradient that no rank had is undefined. Returns nullopt if
  // gradients are accumulated and a later pass takes the step.
  virtual std::optional<std::vector<Tensor>> finish() = 0;
};

// Whether `a` and `b` are the same variables in the same order.
bool same_variables(const std::vector<RefPtr<VariableImpl>>& a, const std::vector<Variable>& b);

// Throws InvalidArgumentError if the gradient's shape or dtype differs from the variable's.
void check_gradient(const Tensor& gradient, const VariableImpl& variable);

}  // namespace tandem
