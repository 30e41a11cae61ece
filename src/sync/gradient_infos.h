// What a reducer is told of variables.
#pragma once

#include <vector>

#include "sync/reducer.h"
#include "tandem/variable.h"

namespace tandem {

inline std::vector<GradientInfo> gradient_infos(const std::vector<Variable>& variables) {
  std::vector<GradientInfo> infos;
  infos.reserve(variables.size());
  for (const Variable& variable : variables)
    infos.push_back({variable.shape().num_elements(), variable.dtype()});
  return infos;
}

}  // namespace tandem
