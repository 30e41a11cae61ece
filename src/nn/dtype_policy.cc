#include "tandem/dtype_policy.h"

#include <mutex>

#include "core/mutex.h"
#include "core/status.h"

namespace tandem {
namespace {

std::mutex policy_mutex;
const HeldAtFork policy_at_fork(policy_mutex);

DTypePolicy& process_policy() {
  static auto& policy = *new DTypePolicy("float32");
  return policy;
}

}  // namespace

DTypePolicy::DTypePolicy(const std::string& name) : name_(name) {
  if (name == "mixed_bfloat16") {
    compute_ = bfloat16;
  } else if (name == "mixed_float16") {
    compute_ = float16;
  } else {
    for (DType dtype : {float32, float64, bfloat16, float16}) {
      if (name != name_of(dtype)) continue;
      compute_ = variable_ = dtype;
      return;
    }
    fail<InvalidArgumentError>(
        "[DTypePolicy] expected 'float32', 'float64', 'bfloat16', 'float16', 'mixed_bfloat16' or "
        "'mixed_float16', got '{}'",
        name);
  }
}

namespace mixed_precision {

void set_global_policy(const DTypePolicy& policy) {
  if (!policy.defined())
    throw InvalidArgumentError("[set_global_policy] expected a policy, got an undefined one");
  const std::lock_guard lock(policy_mutex);
  process_policy() = policy;
}

DTypePolicy global_policy() {
  const std::lock_guard lock(policy_mutex);
  return process_policy();
}

}  // namespace mixed_precision

}  // namespace tandem
