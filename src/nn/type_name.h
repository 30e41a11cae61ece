// Names of layers' classes.
#pragma once

#include <string>
#include <typeinfo>

namespace tandem {

// The name of a class without its namespace, in snake case as Keras writes it: "my_layer".
std::string snake_case_name(const std::type_info& type);

}  // namespace tandem
