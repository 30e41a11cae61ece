#include "runtime/variable_copies.h"

#include "core/status.h"
#include "graph/graph.h"

namespace tandem {

Tensor* VariableCopies::find(const VariableImpl& variable) {
  const auto found = copies_.find(&variable);
  if (found == copies_.end()) return nullptr;
  if (context.graph && !is_symbolic(found->second))
    fail<UnimplementedError>(
        "[DataParallel] a traced function that reads variable {} was called in the forward pass of "
        "a replica, expected it outside: call the DataParallel model inside the traced function",
        quoted_name(variable));
  return &found->second;
}

Tensor& VariableCopies::at(const VariableImpl& variable) {
  if (Tensor* copy = find(variable)) return *copy;
  fail<FailedPreconditionError>(
      "[DataParallel] a replica assigns to variable {}, expected one of the module's: other "
      "variables have no copy on the replica's device",
      quoted_name(variable));
}

}  // namespace tandem
