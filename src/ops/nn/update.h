// Applies the optimizers' update rules. Each updates a variable in place, in one pass over its
// memory. They write to the memory of the given tensors, so the caller ensures that no other tensor
// shares it (VariableImpl::writable). These operations are not recorded for gradients.
//
// Gradients have the variable's shape and floating dtype, slots its shape and the dtype that its
// elements are computed in: float32 for 16-bit ones (InvalidArgumentError otherwise).
//
// In a program, an update may have one more input: a 16-bit copy of a float32 variable, which it
// writes together with the variable (graph/passes/keep_casts.cc).
#pragma once

#include "op/op.h"
#include "ops/nn/update_rules.h"
#include "tandem/tensor.h"

namespace tandem::update {

// The dtype of the slots of a variable.
DType slot_dtype(DType variable);

void apply(const GradientDescent& rule, const Tensor& variable, const Tensor& gradient);
void apply(const Momentum& rule, const Tensor& variable, const Tensor& velocity,
           const Tensor& gradient);
void apply(const DampedMomentum& rule, const Tensor& variable, const Tensor& buffer,
           const Tensor& gradient);
void apply(const Adam& rule, const Tensor& variable, const Tensor& m, const Tensor& v,
           const Tensor& gradient);
// AMSGrad.
void apply(const Adam& rule, const Tensor& variable, const Tensor& m, const Tensor& v,
           const Tensor& largest_v, const Tensor& gradient);
// `momentum` is undefined if rule.momentum is 0. `mean_gradient` is defined if the rule is centred.
void apply(const RmsProp& rule, const Tensor& variable, const Tensor& mean_square,
           const Tensor& momentum, const Tensor& mean_gradient, const Tensor& gradient);
void apply(const Adagrad& rule, const Tensor& variable, const Tensor& accumulator,
           const Tensor& gradient);
void apply(const Lamb& rule, const Tensor& variable, const Tensor& m, const Tensor& v,
           const Tensor& gradient);

// Whether the operation, an update with these attributes, changes neither the variable nor its
// slots where the gradient is 0.
bool skips_zeros(const OpDef& op, const void* attrs);

// A scalar (float64, on the host) that changes with every step, such as the learning rate. In a
// program its attributes are updated like those of the rules.
struct StepScalar {
  double value = 0.0;
  TANDEM_FIELDS(value)
};
Tensor scalar_of_step(const StepScalar& scalar);

}  // namespace tandem::update
