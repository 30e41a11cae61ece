// Names of variables and shapes of results of layers.
#pragma once

#include <string>
#include <vector>

#include "tandem/layer.h"

namespace tandem::testing {

inline std::vector<std::string> names_of(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable& variable : variables) names.push_back(variable.name());
  return names;
}

inline Shape infer(const Layer& layer, const Shape& shape) {
  return layer.base().output_shape({&shape, 1});
}

}  // namespace tandem::testing
