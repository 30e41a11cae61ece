// The optimizers of Apex.
#include "nn/rule_optimizer.h"
#include "tandem/apex.h"

namespace tandem::apex {
namespace {

using tandem::optimizers::apply_with_one_slot;
using tandem::optimizers::apply_with_two_slots;
using tandem::optimizers::Clipping;
using tandem::optimizers::make_optimizer;
using tandem::optimizers::Optimizer;

void check_not_negative(const char* optimizer, const char* what, double value) {
  if (!(value >= 0.0 && std::isfinite(value)))
    fail<InvalidArgumentError>("[{}] expected a finite {} of 0 or more, got {}", optimizer, what,
                               value);
}

}  // namespace

namespace optimizers {

Optimizer FusedAdam(const FusedAdamOptions& options, std::vector<Variable> parameters) {
  const update::Adam rule{.beta_1 = options.beta_1,
                          .beta_2 = options.beta_2,
                          .epsilon = options.epsilon,
                          .weight_decay = options.adam_w_mode ? options.weight_decay : 0.0,
                          .gradient_decay = options.adam_w_mode ? 0.0 : options.weight_decay,
                          .bias_correction = options.bias_correction,
                          .corrected_epsilon = true};
  return make_optimizer("fused_adam", options.learning_rate, Clipping(), std::move(parameters),
                        rule, {{"exp_avg"}, {"exp_avg_sq"}}, apply_with_two_slots<update::Adam>);
}

Optimizer FusedLAMB(const FusedLAMBOptions& options, std::vector<Variable> parameters) {
  check_not_negative("fused_lamb", "max_grad_norm", options.max_grad_norm);
  Clipping clipping;
  if (options.max_grad_norm > 0.0) clipping.global_clipnorm = options.max_grad_norm;
  const update::Lamb rule{.beta_1 = options.beta_1,
                          .beta_2 = options.beta_2,
                          .epsilon = options.epsilon,
                          .weight_decay = options.adam_w_mode ? options.weight_decay : 0.0,
                          .gradient_decay = options.adam_w_mode ? 0.0 : options.weight_decay,
                          .bias_correction = options.bias_correction,
                          .grad_averaging = options.grad_averaging,
                          .scaled = options.use_nvlamb || options.weight_decay != 0.0};
  return make_optimizer("fused_lamb", options.learning_rate, clipping, std::move(parameters), rule,
                        {{"exp_avg"}, {"exp_avg_sq"}}, apply_with_two_slots<update::Lamb>);
}

Optimizer FusedSGD(const FusedSGDOptions& options, std::vector<Variable> parameters) {
  if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0))
    fail<InvalidArgumentError>(
        "[fused_sgd] Nesterov momentum requires a momentum and zero dampening, got a momentum of "
        "{} and a dampening of {}",
        options.momentum, options.dampening);
  if (options.momentum == 0.0)  // decoupled and other weight decay are then the same
    return make_optimizer(
        "fused_sgd", options.learning_rate, Clipping(), std::move(parameters),
        update::GradientDescent{.weight_decay = options.weight_decay}, {},
        [](const update::GradientDescent& rule, const Tensor& variable, const Tensor& gradient,
           std::span<const Tensor>) { update::apply(rule, variable, gradient); });
  const update::DampedMomentum rule{.momentum = options.momentum,
                                    .dampening = options.dampening,
                                    .nesterov = options.nesterov,
                                    .decay_after_momentum = options.wd_after_momentum,
                                    .weight_decay = options.weight_decay};
  return make_optimizer("fused_sgd", options.learning_rate, Clipping(), std::move(parameters), rule,
                        {{"momentum_buffer"}}, apply_with_one_slot<update::DampedMomentum>);
}

}  // namespace optimizers

namespace parallel {

Optimizer LARC(const Optimizer& optimizer, const LARCOptions& options) {
  if (!optimizer.defined()) throw FailedPreconditionError("[LARC] an undefined optimizer was used");
  check_not_negative("LARC", "trust_coefficient", options.trust_coefficient);
  check_not_negative("LARC", "eps", options.eps);
  if (const auto slots = optimizer.defined_impl().variables_of_steps(); !slots.empty())
    fail<FailedPreconditionError>(
        "[LARC] expected an optimizer without slots, got {} with {} variables: wrap it before its "
        "first step",
        optimizer.name(), slots.size());
  return Optimizer(
      optimizer.impl()->with_trust(
          {.coefficient = options.trust_coefficient, .clip = options.clip, .epsilon = options.eps}),
      optimizer.exchange());
}

}  // namespace parallel
}  // namespace tandem::apex
