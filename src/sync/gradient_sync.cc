#include "sync/gradient_sync.h"

#include <algorithm>

#include "core/status.h"

namespace tandem {

bool same_variables(const std::vector<RefPtr<VariableImpl>>& a, const std::vector<Variable>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const RefPtr<VariableImpl>& x, const Variable& y) { return x.get() == &y.impl(); });
}

void check_gradient(const Tensor& gradient, const VariableImpl& variable) {
  const TensorType& spec = variable.spec();
  if (may_agree(gradient.shape(), spec.shape) && gradient.dtype() == spec.dtype) return;
  fail<InvalidArgumentError>(
      "[all_reduce] the gradient of {} has shape {} and dtype {}, expected {} and {}",
      quoted_name(variable), gradient.shape().to_string(), name_of(gradient.dtype()),
      spec.shape.to_string(), name_of(spec.dtype));
}

}  // namespace tandem
