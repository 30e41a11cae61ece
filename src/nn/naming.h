// Names of the layers inside a model, and of tables that are looked up by name.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "tandem/layers.h"

namespace tandem {

// Gives every layer without a name one that is unique among its siblings, from its kind: "dense",
// "dense_1", ... The same architecture always gets the same names. A layer that occurs twice is one
// layer. Throws InvalidArgumentError, naming the parent, when two layers were given one name.
void assign_unique_names(std::span<const Layer> siblings, const std::string& parent);

// An entry of a table of things known by name.
template <class T>
struct Named {
  std::string_view name;
  T value;
};

// The entry of that name. Throws InvalidArgumentError naming all there are: "[losses] expected one
// of ..., got ...".
template <class T>
const T& find_named(std::span<const Named<T>> table, std::string_view what, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Named<T>::name);
  if (found != table.end()) return found->value;
  std::string known;
  for (const auto& entry : table) {
    if (!known.empty()) known += ", ";
    known += entry.name;
  }
  fail<InvalidArgumentError>("[{}] expected one of: {}; got '{}'", what, known, name);
}

}  // namespace tandem
