// Access to the replicas' copies of a variable.
#pragma once

#include <vector>

#include "runtime/variable_impl.h"

namespace tandem::testing {

// The copy of each replica of this process, in the order of the replicas.
inline std::vector<Tensor> copies_of(const Variable& variable) {
  VariableStorage& storage = variable.impl().storage();
  std::vector<Tensor> copies;
  for (std::size_t i = 0; i < storage.num_places(); ++i) copies.push_back(storage.value(i));
  return copies;
}

}  // namespace tandem::testing
