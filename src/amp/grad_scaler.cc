#include <cmath>
#include <mutex>

#include "core/mutex.h"
#include "core/status.h"
#include "graph/graph.h"
#include "nn/optimizer_impl.h"
#include "runtime/replica_context.h"
#include "tandem/amp.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem::amp {
namespace {

using optimizers::LossScale;
using optimizers::LossScaledStep;
using optimizers::LossScaleOptions;
using optimizers::Optimizer;

LossScaleOptions options_of(const GradScalerOptions& options) {
  return {.initial_scale = options.init_scale,
          .growth_factor = options.growth_factor,
          .backoff_factor = options.backoff_factor,
          .growth_interval = options.growth_interval};
}

double checked_scale(double scale) {
  if (!(scale > 0.0 && std::isfinite(scale)))
    fail<InvalidArgumentError>("[GradScaler] expected a positive, finite scale, got {}", scale);
  return scale;
}

void refuse_float16(const Tensor& gradient) {
  if (gradient.defined() && gradient.dtype() == float16)
    throw InvalidArgumentError("[GradScaler] Attempting to unscale FP16 gradients.");
}

// The result of a check that a traced function has made exists in its runs alone.
void expect_made_here(const Tensor& finite) {
  if (finite.defined() && is_symbolic(finite) && !context.graph)
    throw FailedPreconditionError(
        "[GradScaler] unscale_(), step() and update() of one iteration belong into one function: "
        "a traced function has called some of them, and the code outside of it another");
}

int this_replica() {
  const ReplicaContext* context = ReplicaContext::current();
  return context ? context->local_replica_id() : 0;
}

}  // namespace

struct GradScaler::State {
  // The calls for an optimizer since the last update().
  struct Progress {
    bool stepped = false;
    Tensor unscaled;  // LossScaledStep::unscaled
    Tensor finite;    // LossScaledStep::finite
  };
  // By the optimizer.
  using Optimizers = std::unordered_map<const Optimizer::Impl*, Progress>;

  explicit State(const GradScalerOptions& given)
      : options(given), scale("GradScaler", options_of(given)) {}

  Progress& progress(const Optimizer& optimizer) {
    const std::lock_guard lock(mutex);
    return replicas[this_replica()][&optimizer.defined_impl()];
  }

  GradScalerOptions options;
  LossScale scale;
  std::mutex mutex;
  const HeldAtFork held_at_fork{mutex};
  // A replica uses its own entry only. References to entries stay valid.
  std::unordered_map<int, Optimizers> replicas;
};

GradScaler::GradScaler(const GradScalerOptions& options)
    : state_(std::make_shared<State>(options)) {}

void GradScaler::require_device(const std::string& device) {
  if (device != "cpu" && device != "gpu" && device != "cuda")
    fail<InvalidArgumentError>("[GradScaler] expected device 'cpu', 'gpu' or 'cuda', got '{}'",
                               device);
}

Tensor GradScaler::scale(const Tensor& loss) {
  return state_->options.enabled ? state_->scale.scaled(loss) : loss;
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> result;
  for (const Tensor& output : outputs) result.push_back(scale(output));
  return result;
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!state_->options.enabled) return;
  State::Progress& progress = state_->progress(optimizer);
  if (progress.stepped)
    throw FailedPreconditionError("[GradScaler] unscale_() is being called after step().");
  if (progress.unscaled.defined())
    throw FailedPreconditionError(
        "[GradScaler] unscale_() has already been called on this optimizer since the last "
        "update().");
  const std::vector<Variable>& parameters = optimizer.parameters();
  std::vector<Tensor> gradients;
  for (const Variable& parameter : parameters) {
    gradients.push_back(parameter.grad());
    refuse_float16(gradients.back());
  }
  state_->scale.unscale(gradients);
  progress.unscaled = optimizers::are_finite(gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) Variable(parameters[i]).set_grad(gradients[i]);
}

void GradScaler::step(Optimizer& optimizer) {
  if (!state_->options.enabled) return optimizer.step();
  State::Progress& progress = state_->progress(optimizer);
  if (progress.stepped)
    throw FailedPreconditionError(
        "[GradScaler] step() has already been called since the last update().");
  expect_made_here(progress.unscaled);
  if (!progress.unscaled.defined())
    for (const Variable& parameter : optimizer.parameters()) refuse_float16(parameter.grad());
  LossScaledStep step{.scale = &state_->scale, .unscaled = progress.unscaled};
  optimizer.step(&step);
  if (!step.finite.defined())
    throw FailedPreconditionError("[GradScaler] No inf checks were recorded for this optimizer.");
  progress.stepped = true;
  progress.finite = step.finite;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!state_->options.enabled) return;
  if (new_scale) checked_scale(*new_scale);
  State::Optimizers done;
  {
    const std::lock_guard lock(state_->mutex);
    done.swap(state_->replicas[this_replica()]);
  }
  if (new_scale) return state_->scale.set(*new_scale);
  Tensor finite;
  for (const auto& [optimizer, progress] : done) {
    const Tensor& checked = progress.stepped ? progress.finite : progress.unscaled;
    expect_made_here(checked);
    if (checked.defined()) finite = finite.defined() ? logical_and(finite, checked) : checked;
  }
  if (!finite.defined())
    throw FailedPreconditionError("[GradScaler] No inf checks were recorded prior to update.");
  state_->scale.update(finite);
}

double GradScaler::get_scale() const {
  return state_->options.enabled ? state_->scale.value() : 1.0;
}
double GradScaler::get_growth_factor() const { return state_->options.growth_factor; }
double GradScaler::get_backoff_factor() const { return state_->options.backoff_factor; }
std::int64_t GradScaler::get_growth_interval() const { return state_->options.growth_interval; }
bool GradScaler::is_enabled() const { return state_->options.enabled; }

std::map<std::string, double> GradScaler::state_dict() const {
  if (!state_->options.enabled) return {};
  return {{"scale", state_->scale.value()},
          {"growth_factor", state_->options.growth_factor},
          {"backoff_factor", state_->options.backoff_factor},
          {"growth_interval", static_cast<double>(state_->options.growth_interval)},
          {"_growth_tracker", static_cast<double>(state_->scale.good_steps())}};
}

void GradScaler::load_state_dict(const std::map<std::string, double>& state) {
  if (!state_->options.enabled) return;
  if (state.empty())
    throw InvalidArgumentError(
        "[GradScaler] The source state dict is empty, possibly because it was saved from a "
        "disabled "
        "instance of GradScaler.");
  const auto value = [&](const char* name) {
    const auto found = state.find(name);
    if (found == state.end())
      fail<InvalidArgumentError>("[GradScaler] the state dict has no '{}'", name);
    return found->second;
  };
  GradScalerOptions options = state_->options;
  options.growth_factor = value("growth_factor");
  options.backoff_factor = value("backoff_factor");
  options.growth_interval = static_cast<std::int64_t>(value("growth_interval"));
  const double scale = checked_scale(value("scale"));
  const auto good_steps = static_cast<std::int64_t>(value("_growth_tracker"));
  state_->scale.configure(options_of(options));
  state_->options = options;
  state_->scale.set(scale, good_steps);
}

std::vector<Variable> GradScaler::variables() const {
  return state_->options.enabled ? state_->scale.variables() : std::vector<Variable>();
}

}  // namespace tandem::amp
