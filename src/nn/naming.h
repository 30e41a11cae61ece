// Names of the layers inside a model, and tables that are looked up by name.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "tandem/layers.h"

namespace tandem {

// Gives every layer without a name one that is derived from its kind and unique among its siblings:
// "dense", "dense_1", ... The same architecture always gets the same names. A layer that occurs
// twice is one layer. Throws InvalidArgumentError if the user gave two layers the same name.
void assign_unique_names(std::span<const Layer> siblings, const std::string& parent);

// An entry of a table that is looked up by name.
template <class T>
struct NamedEntry {
  std::string_view name;
  T value;
};

// The value of the entry `name`. Otherwise throws InvalidArgumentError with all known names:
// "[losses] expected one of: ...; got '...'".
template <class T>
const T& find_named(std::span<const NamedEntry<T>> table, std::string_view what,
                    std::string_view name) {
  const auto found = std::ranges::find(table, name, &NamedEntry<T>::name);
  if (found != table.end()) return found->value;
  std::string known;
  for (const auto& entry : table) {
    if (!known.empty()) known += ", ";
    known += entry.name;
  }
  fail<InvalidArgumentError>("[{}] expected one of: {}; got '{}'", what, known, name);
}

}  // namespace tandem
