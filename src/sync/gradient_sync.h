// How the gradients of a backward pass are synchronised over the ranks of a job: the one interface
// between whoever computes gradients and whoever reduces them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/variable_impl.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// One backward pass of one rank. Belongs to one thread. Every rank starts it with the same
// variables; gradient `index` is that of variable `index`.
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // Where gradient `index` is best computed (BackwardPass::place); undefined: anywhere.
  virtual Tensor place(std::size_t index) {
    static_cast<void>(index);
    return {};
  }
  // Gradient `index` is final; undefined: this rank has none. A tensor that nothing else refers to
  // may be reduced in place. A bucket is launched as soon as its gradients are there.
  virtual void ready(std::size_t index, Tensor gradient) = 0;
  // Waits for the rest. The reduced gradients, in the order of the variables, where the rank's
  // variables are; undefined where no rank had one. Nothing: the step is taken in a later pass.
  virtual std::optional<std::vector<Tensor>> finish() = 0;
};

// Whether both are the same variables in the same order.
bool same_variables(const std::vector<RefPtr<VariableImpl>>& a, const std::vector<Variable>& b);

// Throws InvalidArgumentError where the variable cannot have this gradient.
void check_gradient(const Tensor& gradient, const VariableImpl& variable);

}  // namespace tandem
