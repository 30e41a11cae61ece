// Clipping of grad() of parameters.
#include <cmath>

#include "core/status.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/optim.h"

namespace tandem::nn::utils {
namespace {

double norm_of(const std::vector<Tensor>& gradients, double p) {
  if (p == 2.0) return global_norm(gradients).item();
  std::vector<Tensor> parts;
  for (const Tensor& gradient : gradients) {
    const Tensor size = abs(gradient);
    parts.push_back(
        cast(std::isinf(p) ? reduce_max(size) : reduce_sum(pow(size, p)), float64).cpu());
  }
  const Tensor all = stack(parts);
  return std::isinf(p) ? reduce_max(all).item() : std::pow(reduce_sum(all).item(), 1.0 / p);
}

}  // namespace

double clip_grad_norm_(const std::vector<Variable>& parameters, double max_norm,
                       const ClipGradNormOptions& options) {
  if (!(max_norm >= 0.0 && options.norm_type > 0.0))
    fail<InvalidArgumentError>(
        "[clip_grad_norm_] expected a max_norm of 0 or more and a positive norm_type, got {} and "
        "{}",
        max_norm, options.norm_type);
  NoGradScope no_grad;
  std::vector<Variable> variables;
  std::vector<Tensor> gradients;
  for (const Variable& parameter : parameters)
    if (Tensor gradient = parameter.grad(); gradient.defined()) {
      variables.push_back(parameter);
      gradients.push_back(gradient.detach());
    }
  if (gradients.empty()) return 0.0;
  const double norm = norm_of(gradients, options.norm_type);
  if (options.error_if_nonfinite && !std::isfinite(norm))
    fail<InvalidArgumentError>("[clip_grad_norm_] the norm of the gradients is {}", norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1.0) return norm;
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i].set_grad(gradients[i] * factor);
  return norm;
}

void clip_grad_value_(const std::vector<Variable>& parameters, double clip_value) {
  if (!(clip_value >= 0.0))
    fail<InvalidArgumentError>("[clip_grad_value_] expected a clip_value of 0 or more, got {}",
                               clip_value);
  NoGradScope no_grad;
  for (Variable parameter : parameters)
    if (const Tensor gradient = parameter.grad(); gradient.defined())
      parameter.set_grad(clip_by_value(gradient.detach(), -clip_value, clip_value));
}

}  // namespace tandem::nn::utils
