#include "runtime/session_state.h"

#include "core/status.h"

namespace tandem {

Tensor SessionVariable::value() {
  if (!initialized_)
    fail<FailedPreconditionError>(
        "Attempting to use uninitialized value {}. Run graph.initializer() first, or make the "
        "session with SessionOptions{{.initialize_variables = true}}.",
        handle_.name);
  return value_;
}

Tensor SessionVariable::writable() {
  if (!value_.defined()) {
    const MemoryTagScope tag(MemoryTag::kWeights);
    value_ = make_tensor(device_, spec().shape, spec().dtype, handle_.op->name);
  }
  return value_;
}

RefPtr<SessionVariable> SessionState::variable(const Node& handle, Device& device) {
  RefPtr<SessionVariable>& variable = variables_[&handle];
  if (!variable) variable = make_ref<SessionVariable>(handle, device);
  return variable;
}

std::int64_t SessionState::count(const Node& handle) const {
  Resource& resource = handle.resource ? *handle.resource : *variables_.at(&handle);
  std::int64_t count = 0;
  to_host(resource.value(), &count);
  return count;
}

}  // namespace tandem
