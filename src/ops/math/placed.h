// Options that every function that makes a tensor has.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/device.h"
#include "tandem/tensor.h"

namespace tandem {

// While it exists, operations run on `device`; empty: where they would anyway.
class Placed {
 public:
  explicit Placed(std::string_view device) {
    if (!device.empty()) scope_.emplace(device);
  }

  // Marks a new tensor for gradients if `requires_grad`, and returns it.
  Tensor mark(Tensor made, bool requires_grad) const {
    return requires_grad ? made.set_requires_grad() : made;
  }

 private:
  std::optional<DeviceScope> scope_;
};

}  // namespace tandem
