// Steps of optimizers with a loss scale.
#include <limits>

#include "core/status.h"
#include "nn/optimizer_impl.h"
#include "runtime/replica_context.h"
#include "tandem/autodiff.h"
#include "tandem/control_flow.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::optimizers {
namespace {

std::size_t this_replica() {
  const ReplicaContext* context = ReplicaContext::current();
  return context ? static_cast<std::size_t>(context->local_replica_id()) : std::size_t{0};
}

}  // namespace

void spread_overflow(const Tensor& finite, std::vector<Tensor>& gradients) {
  for (Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const Tensor one = full(Shape::scalar(), 1.0, {.dtype = gradient.dtype()});
    gradient = gradient * where(finite, one, one * std::numeric_limits<double>::quiet_NaN());
    return;
  }
}

std::optional<LossScaledStep> Optimizer::Impl::own_scaled_step() {
  if (loss_scales_.empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  LossScaledStep step{.scale = loss_scales_[0].get()};
  if (const auto found = unscaled_.find(this_replica()); found != unscaled_.end()) {
    step.unscaled = std::move(found->second);
    unscaled_.erase(found);
  }
  scaled_.erase(this_replica());
  return step;
}

void Optimizer::Impl::note_scaled() {
  const std::lock_guard lock(mutex_);
  scaled_.insert(this_replica());
}

void Optimizer::Impl::note_step(std::span<const Tensor> gradients) {
  if (!plain_steps_) return;
  const std::size_t replica = this_replica();
  {
    const std::lock_guard lock(mutex_);
    if (scaled_.count(replica) + delayed_.count(replica) + unscaled_.count(replica) > 0) return;
  }
  const Tensor finite = are_finite(gradients);
  const std::lock_guard lock(mutex_);
  if (finite.defined()) unscaled_[replica] = finite;
}

void Optimizer::Impl::take_scaled_step(std::span<State* const> states,
                                       std::vector<Tensor> gradients,
                                       const std::vector<Variable>& variables,
                                       GradientExchange* exchange, LossScaledStep& scaled) {
  if (!scaled.unscaled.defined()) scaled.scale->unscale(gradients);
  // After the division, which overflows where the scale is tiny.
  scaled.finite = are_finite(gradients);
  if (!scaled.finite.defined()) return;
  clip(gradients);
  cond(
      scaled.finite, [&] { update_replicas(states, gradients, variables, exchange); }, [] {});
  if (scaled.scale != loss_scale()) return;  // the owner of the scale updates it
  const auto update = [&] {
    for (const auto& scale : loss_scales_) scale->update(scaled.finite);
  };
  update();
  if (ReplicaContext* context = ReplicaContext::current()) context->run_for_idle_replicas(update);
}

void Optimizer::Impl::unscale_and_add(LossScale& scale, std::span<const Tensor> earlier) {
  std::vector<Tensor> gradients;
  for (const Variable& variable : parameters_) gradients.push_back(variable.grad());
  NoGradScope no_grad;
  scale.unscale(gradients);
  const Tensor finite = are_finite(gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Tensor& sum = gradients[i];
    if (!earlier.empty() && earlier[i].defined())
      sum = sum.defined() ? sum + earlier[i] : earlier[i];
    if (sum.defined()) Variable(parameters_[i]).set_grad(sum);
  }
  if (!finite.defined()) return;
  const std::lock_guard lock(mutex_);
  Tensor& unscaled = unscaled_[this_replica()];
  unscaled = unscaled.defined() ? logical_and(unscaled, finite) : finite;
}

void Optimizer::Impl::unscale_parameters() {
  {
    const std::lock_guard lock(mutex_);
    if (unscaled_.count(this_replica()) > 0)
      fail<FailedPreconditionError>(
          "[{}] the gradients have been unscaled since the last step: call step() first", name_);
  }
  unscale_and_add(*loss_scale(), {});
}

bool Optimizer::Impl::takes_scaled_gradients() {
  const std::lock_guard lock(mutex_);
  return delayed_.count(this_replica()) > 0;
}

void Optimizer::Impl::finish_backward(LossScale& scale, std::span<const Tensor> earlier,
                                      bool delay_unscale) {
  if (!delay_unscale) {
    {
      const std::lock_guard lock(mutex_);
      delayed_.erase(this_replica());
    }
    return unscale_and_add(scale, earlier);
  }
  {
    const std::lock_guard lock(mutex_);
    delayed_.insert(this_replica());
  }
  NoGradScope no_grad;
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    if (!earlier[i].defined()) continue;
    Variable variable = parameters_[i];
    const Tensor scaled = scale.scaled(earlier[i]), gradient = variable.grad();
    variable.set_grad(gradient.defined() ? gradient + scaled : scaled);
  }
}

LossScaleOptimizer::LossScaleOptimizer(Optimizer optimizer, const LossScaleOptions& options)
    : Optimizer(std::move(optimizer)) {
  Optimizer::Impl& impl = defined_impl();
  if (impl.loss_scale())
    fail<FailedPreconditionError>("[LossScaleOptimizer] optimizer '{}' has loss scaling already",
                                  impl.name());
  impl.set_loss_scales({std::make_shared<LossScale>("LossScaleOptimizer", options)});
}

}  // namespace tandem::optimizers
