#include "train/checkpoint/restore.h"

#include <algorithm>
#include <set>

#include "core/status.h"
#include "tandem/checkpoint.h"

namespace tandem {
namespace {

// "'a', 'b', 'c' and 12 more"
std::string list_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

void check_variables(const std::vector<Variable>& variables,
                     const std::map<std::string, Tensor>& tensors, const std::string& what) {
  std::vector<std::string> missing, extra;
  std::set<std::string> expected;
  for (const Variable& variable : variables) {
    expected.insert(variable.name());
    if (!tensors.contains(variable.name())) missing.push_back(variable.name());
  }
  for (const auto& [name, tensor] : tensors)
    if (!expected.contains(name)) extra.push_back(name);
  if (!missing.empty() && !extra.empty())
    fail<NotFoundError>("[load] {}: it has no tensor for {}; those not used are {}", what,
                        list_names(missing), list_names(extra));
  if (!missing.empty())
    fail<NotFoundError>("[load] {}: it has no tensor for {}", what, list_names(missing));
  if (!extra.empty())
    fail<InvalidArgumentError>("[load] {}: no variable is named {}", what, list_names(extra));
  for (const Variable& variable : variables) {
    const Tensor& tensor = tensors.at(variable.name());
    if (!(tensor.shape() == variable.shape()) || tensor.dtype() != variable.dtype())
      fail<InvalidArgumentError>("[load] {}: '{}' is {} {}, expected {} {}", what, variable.name(),
                                 name_of(tensor.dtype()), tensor.shape().to_string(),
                                 name_of(variable.dtype()), variable.shape().to_string());
  }
}

void restore_variables(const std::vector<Variable>& variables,
                       const std::map<std::string, Tensor>& tensors, const std::string& what) {
  check_variables(variables, tensors, what);
  for (Variable variable : variables) variable.assign(tensors.at(variable.name()));
}

}  // namespace tandem
