// Trust ratios: Y. You, I. Gitman and B. Ginsburg, 2017 (LARS), in the form of apex.parallel.LARC.
#include "core/status.h"
#include "graph/graph.h"
#include "nn/optimizer_impl.h"
#include "ops/nn/update.h"
#include "runtime/placement.h"
#include "runtime/variable_impl.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/graph.h"
#include "tandem/math.h"

namespace tandem::optimizers {
namespace {

using TrustRatio = Optimizer::Impl::TrustRatio;

// (gradient + weight_decay * variable) * ratio; the gradient alone if a norm is 0. `rate`: the
// learning rate, a float64 scalar.
Tensor scaled(const TrustRatio& trust, const Tensor& variable, const Tensor& gradient,
              const Tensor& rate) {
  const Tensor of_variable = global_norm({variable}), of_gradient = global_norm({gradient});
  Tensor ratio = of_variable * trust.coefficient /
                 (of_gradient + of_variable * trust.weight_decay + trust.epsilon);
  if (trust.clip) ratio = minimum(ratio / cast(rate, ratio.dtype()), 1.0);
  const Tensor applies = logical_and(greater(of_variable, 0.0), greater(of_gradient, 0.0));
  const DType dtype = gradient.dtype();
  const Tensor factor = cast(where(applies, ratio, ones_like(ratio)), dtype);
  Tensor result = gradient * factor;
  if (trust.weight_decay != 0.0) {
    const Tensor decay = where(applies, ratio * trust.weight_decay, zeros_like(ratio));
    result = result + variable * cast(decay, dtype);
  }
  return result;
}

}  // namespace

Optimizer::Impl::Impl(const Impl& other, const TrustRatio& trust)
    : std::enable_shared_from_this<Impl>(),
      name_(other.name_),
      groups_(other.groups_),
      group_of_(other.group_of_),
      schedule_(other.schedule_),
      clipping_(other.clipping_),
      parameters_(other.parameters_),
      loss_scales_(other.loss_scales_),
      plain_steps_(other.plain_steps_),
      trust_(trust) {
  if (other.trust_)
    fail<FailedPreconditionError>("[LARC] expected an optimizer without trust ratios, got {}",
                                  name_);
  if (groups_.size() > 1)
    fail<UnimplementedError>(
        "[LARC] expected an optimizer with one group of parameters, got {} with {}", name_,
        groups_.size());
}

std::vector<Tensor> Optimizer::Impl::trusted(std::size_t copy, std::span<State* const> states,
                                             std::span<const Tensor> gradients,
                                             const StepInfo& step,
                                             const CountedStep& counted) const {
  std::vector<Tensor> result(gradients.begin(), gradients.end());
  if (!trust_) return result;
  Tensor rate;
  {
    std::shared_ptr<const AttrUpdate> step_update;
    if (counted.of_run)
      step_update = std::make_shared<const AttrUpdate>(
          [of_run = counted.of_run](void* attrs, std::int64_t more) {
            static_cast<update::StepScalar*>(attrs)->value = of_run(more).learning_rate;
          },
          counted.counter);
    const Scoped update_scope(context.attr_update, &step_update);
    const DeviceScope host("/cpu:0");
    rate = update::scalar_of_step({.value = step.learning_rate});
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!gradients[i].defined()) continue;
    VariableImpl& variable = states[i]->variable.impl();
    if (!variable.storage().applies(copy)) continue;
    const ColocateWith beside(variable.storage().value(copy));
    result[i] = scaled(*trust_, variable.read_home(copy), gradients[i], rate);
  }
  return result;
}

}  // namespace tandem::optimizers
