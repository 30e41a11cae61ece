// The functions of Optimizer, a handle.
#include "core/status.h"
#include "nn/optimizer_impl.h"
#include "tandem/autodiff.h"

namespace tandem::optimizers {

Optimizer::Impl& Optimizer::defined_impl() const {
  if (!impl_) throw FailedPreconditionError("[Optimizer] an undefined optimizer was used");
  return *impl_;
}

const std::string& Optimizer::name() const { return defined_impl().name(); }

void Optimizer::apply_gradients(std::vector<Tensor> gradients,
                                const std::vector<Variable>& variables,
                                const ApplyOptions& options) {
  defined_impl().apply(std::move(gradients), variables, options, exchange_.get(),
                       Impl::Missing::kReported);
}

void Optimizer::apply_gradients(const std::vector<std::pair<Tensor, Variable>>& gradients,
                                const ApplyOptions& options) {
  std::vector<Tensor> values;
  std::vector<Variable> variables;
  for (const auto& [gradient, variable] : gradients) {
    values.push_back(gradient);
    variables.push_back(variable);
  }
  apply_gradients(std::move(values), variables, options);
}

std::vector<std::pair<Tensor, Variable>> zip(const std::vector<Tensor>& gradients,
                                             const std::vector<Variable>& variables) {
  if (gradients.size() != variables.size())
    fail<InvalidArgumentError>("[zip] expected a gradient per variable, got {} for {}",
                               gradients.size(), variables.size());
  std::vector<std::pair<Tensor, Variable>> pairs;
  for (std::size_t i = 0; i < gradients.size(); ++i) pairs.emplace_back(gradients[i], variables[i]);
  return pairs;
}

void Optimizer::minimize(const Tensor& loss, const std::vector<Variable>& variables) {
  defined_impl().minimize(loss, variables, exchange_.get());
}

void Optimizer::minimize(const Tensor& loss, const std::vector<Variable>& variables,
                         GradientTape& tape) {
  apply_gradients(tape.gradient(scale_loss(loss), variables), variables);
}

const std::vector<Variable>& Optimizer::parameters() const { return defined_impl().parameters(); }

void Optimizer::step() { step(nullptr); }

void Optimizer::step(LossScaledStep* scaled) {
  const std::vector<Variable>& variables = parameters();
  if (variables.empty())
    fail<FailedPreconditionError>(
        "[{}] step() needs parameters, got none: pass them to the optimizer's constructor", name());
  std::vector<Tensor> gradients;
  for (const Variable& variable : variables) gradients.push_back(variable.grad());
  if (!scaled) impl_->note_step(gradients);
  impl_->apply(std::move(gradients), variables, {}, exchange_.get(), Impl::Missing::kExpected,
               scaled);
}

void Optimizer::zero_grad() {
  for (Variable variable : parameters()) variable.zero_grad();
}

std::int64_t Optimizer::iterations() const { return defined_impl().iterations(); }
double Optimizer::learning_rate() const { return defined_impl().learning_rate(); }
bool Optimizer::scheduled() const { return defined_impl().scheduled(); }
void Optimizer::set_learning_rate(const LearningRate& rate) {
  defined_impl().set_learning_rate(rate);
}
std::vector<Variable> Optimizer::variables() const { return defined_impl().variables(); }
void Optimizer::build(const std::vector<Variable>& variables) { defined_impl().build(variables); }

Tensor Optimizer::scale_loss(const Tensor& loss) const {
  LossScale* scale = defined_impl().loss_scale();
  if (!scale) return loss;
  impl_->note_scaled();
  return scale->scaled(loss);
}

double Optimizer::loss_scale() const {
  LossScale* scale = defined_impl().loss_scale();
  return scale ? scale->value() : 1.0;
}

void Optimizer::unscale_gradients() {
  if (defined_impl().loss_scale()) impl_->unscale_parameters();
}

}  // namespace tandem::optimizers
