// autograd::grad(): gradients of outputs with respect to inputs.
#include "tandem/autograd.h"

#include "autodiff/engine.h"
#include "core/status.h"
#include "tandem/array.h"
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

}  // namespace tandem
