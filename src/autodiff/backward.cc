// Tensor::backward: accumulates gradients in leaves.
#include <mutex>

#include "autodiff/engine.h"
#include "core/log.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/tensor.h"

namespace tandem {
namespace {

void warn_of_cycle() {
  static std::once_flag once;
  std::call_once(once, [] {
    logging::warn(
        "[backward] with create_graph, the grad() of a leaf refers to the recorded operations and "
        "so "
        "to the leaf itself. This reference cycle leaks memory unless you call zero_grad() "
        "afterwards. GradientTape::gradient() creates no such cycle.");
  });
}

}  // namespace

void Tensor::backward(BackwardOptions options) const {
  if (size() != 1)
    fail<InvalidArgumentError>(
        "[backward] expected a scalar, got shape {}; pass the gradient of the final value",
        shape().to_string());
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  backward(ones_like(detach()), options);
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  const TensorImpl& impl = impl_of(*this);
  if (is_constant(impl.grad))
    throw FailedPreconditionError(
        "[backward] the tensor depends on nothing that requires a gradient (no trainable variable, "
        "no tensor marked with "
        "set_requires_grad(), or recorded under NoGradScope)");
  if (!may_agree(gradient.shape(), impl.shape) || gradient.dtype() != impl.dtype)
    fail<InvalidArgumentError>(
        "[backward] expected a gradient of shape {} and dtype {}, got {} and {}",
        impl.shape.to_string(), name_of(impl.dtype), gradient.shape().to_string(),
        name_of(gradient.dtype()));
  if (options.create_graph) warn_of_cycle();
  run_backward({.roots = {{impl.grad, ensure_shape(gradient, impl.shape)}},
                .sources = {},
                .retain_graph = options.retain_graph,
                .create_graph = options.create_graph,
                .on_ready = {}});
}

}  // namespace tandem
