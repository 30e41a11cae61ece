#include "runtime/variable_name.h"

#include "core/status.h"

namespace tandem {

std::string quoted_name(const std::string& name, const TensorType& spec) {
  if (!name.empty()) return fmt::format("'{}'", name);
  return fmt::format("(unnamed, of shape {} and dtype {})", spec.shape.to_string(),
                     name_of(spec.dtype));
}

}  // namespace tandem
