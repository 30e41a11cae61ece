// Checks named tensors against variables, before any variable is assigned.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/variable.h"

namespace tandem {

// Throws the errors of restore_variables() if `tensors` do not match `variables`.
void check_variables(const std::vector<Variable>& variables,
                     const std::map<std::string, Tensor>& tensors, const std::string& what);

}  // namespace tandem
