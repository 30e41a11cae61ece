#include "nn/weights.h"

#include <algorithm>
#include <set>

#include "core/status.h"
#include "tandem/layers.h"

namespace tandem {
namespace {

void expect_value(const Variable& variable, const Tensor& value, const std::string& owner,
                  const std::string& name) {
  if (!value.defined())
    fail<InvalidArgumentError>("[{}] expected a value for '{}', got an undefined tensor", owner,
                               name);
  if (value.shape() != variable.shape() || value.dtype() != variable.dtype())
    fail<InvalidArgumentError>("[{}] expected a value of shape {} and dtype {} for '{}', got {} {}",
                               owner, variable.shape().to_string(), name_of(variable.dtype()), name,
                               value.shape().to_string(), name_of(value.dtype()));
}

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names)
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", name);
  return list.empty() ? "none" : list;
}

}  // namespace

std::vector<Tensor> values_of(const std::vector<Variable>& variables) {
  std::vector<Tensor> values;
  values.reserve(variables.size());
  for (const Variable& variable : variables) values.push_back(variable.value().detach());
  return values;
}

void assign_values(const std::vector<Variable>& variables, const std::vector<Tensor>& values,
                   const std::string& owner) {
  if (values.size() != variables.size())
    fail<InvalidArgumentError>("[{}] set_weights() expected {} tensors, got {}{}", owner,
                               variables.size(), values.size(),
                               variables.empty() ? "; call or build the layer first" : "");
  for (std::size_t i = 0; i < values.size(); ++i)
    expect_value(variables[i], values[i], owner, variables[i].name());
  for (std::size_t i = 0; i < values.size(); ++i) Variable(variables[i]).assign(values[i]);
}

StateDict state_of(const NamedVariables& variables, const std::string& owner) {
  StateDict state;
  for (const auto& [name, variable] : variables)
    if (!state.add(name, variable))
      fail<InvalidArgumentError>(
          "[{}] two variables are named '{}'; give their layers unique names", owner, name);
  return state;
}

void load_state(const NamedVariables& variables, const std::map<std::string, Tensor>& state,
                const std::string& owner) {
  std::vector<std::string> missing, unexpected;
  std::set<std::string> known;
  for (const auto& [name, variable] : variables) {
    known.insert(name);
    if (!state.contains(name)) missing.push_back(name);
  }
  for (const auto& [name, value] : state)
    if (!known.contains(name)) unexpected.push_back(name);
  if (!missing.empty() || !unexpected.empty())
    fail<InvalidArgumentError>(
        "[{}] load_state_dict() expected the names of state_dict(): missing: {}; unexpected: {}{}",
        owner, listed(missing), listed(unexpected),
        variables.empty() ? "; call or build the layer first" : "");
  for (const auto& [name, variable] : variables)
    expect_value(variable, state.at(name), owner, name);
  for (const auto& [name, variable] : variables) Variable(variable).assign(state.at(name));
}

bool StateDict::add(const std::string& name, const Variable& variable) {
  if (!emplace(name, variable.value().detach()).second) return false;
  variables_.push_back(variable);
  return true;
}

std::int64_t LayerBase::count_params() const {
  std::int64_t count = 0;
  for (const Variable& variable : variables()) count += variable.shape().num_elements();
  return count;
}

std::vector<Tensor> LayerBase::get_weights() const { return values_of(variables()); }
void LayerBase::set_weights(const std::vector<Tensor>& weights) const {
  assign_values(variables(), weights, label());
}
NamedVariables LayerBase::named_variables() const {
  NamedVariables result;
  for (const Variable& variable : variables()) result.emplace_back(variable.name(), variable);
  return result;
}
NamedParameters LayerBase::named_parameters() const {
  NamedParameters result;
  for (auto& entry : named_variables())
    if (entry.second.trainable()) result.emplace_back(std::move(entry));
  return result;
}
StateDict LayerBase::state_dict() const { return state_of(named_variables(), label()); }
void LayerBase::load_state_dict(const std::map<std::string, Tensor>& state) const {
  load_state(named_variables(), state, label());
}

std::vector<Tensor> Layer::get_weights() const { return base().get_weights(); }
void Layer::set_weights(const std::vector<Tensor>& weights) const { base().set_weights(weights); }
NamedParameters Layer::named_parameters() const { return base().named_parameters(); }

bool NamedParameters::contains(const std::string& name) const {
  return std::any_of(begin(), end(), [&](const NamedParameter& one) { return one.key() == name; });
}
NamedParameters::operator std::vector<std::pair<std::string, Variable>>() const {
  return {begin(), end()};
}

const Variable& NamedParameters::operator[](const std::string& name) const {
  std::string names;
  for (const NamedParameter& one : *this) {
    if (one.key() == name) return one.value();
    names += (names.empty() ? "" : ", ") + one.key();
  }
  fail<NotFoundError>("[named_parameters] no parameter '{}'; there are: {}", name, names);
}
StateDict Layer::state_dict() const { return base().state_dict(); }
void Layer::load_state_dict(const std::map<std::string, Tensor>& state) const {
  base().load_state_dict(state);
}

}  // namespace tandem
