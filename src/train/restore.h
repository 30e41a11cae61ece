// Checking named tensors against variables before any is assigned.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/variable.h"

namespace tandem {

// Throws what restore_variables() throws when `tensors` are not those of `variables`.
void check_variables(const std::vector<Variable>& variables,
                     const std::map<std::string, Tensor>& tensors, const std::string& what);

}  // namespace tandem
