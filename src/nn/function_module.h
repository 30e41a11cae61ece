// Makes the modules that are functions.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tandem/module.h"

namespace tandem::nn {

// `kind`: what the module prints.
inline std::shared_ptr<FunctionModule> function_module(const char* kind,
                                                       std::function<Tensor(const Tensor&)> apply) {
  return std::make_shared<FunctionModule>(kind, std::move(apply));
}

}  // namespace tandem::nn
