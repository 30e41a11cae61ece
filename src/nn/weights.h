// Values of variables as lists and by name.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/layers.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// `owner` is the layer or model in messages.
std::vector<Tensor> values_of(const std::vector<Variable>& variables);
// Throws InvalidArgumentError for another number, shape or dtype, before anything is assigned.
void assign_values(const std::vector<Variable>& variables, const std::vector<Tensor>& values,
                   const std::string& owner);

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

// Throws InvalidArgumentError if two have one name.
StateDict state_of(const NamedVariables& variables, const std::string& owner);
// Throws InvalidArgumentError for missing or unexpected names, another shape or dtype, before
// anything is assigned.
void load_state(const NamedVariables& variables, const std::map<std::string, Tensor>& state,
                const std::string& owner);

}  // namespace tandem
