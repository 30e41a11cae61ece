#include "train/callbacks/state.h"

#include <vector>

#include "tandem/creation.h"
#include "tandem/device.h"

namespace tandem::callbacks {

Tensor number(double value) {
  const DeviceScope host("/cpu:0");
  return constant(std::vector<double>{value}, {.dtype = float64});
}

double number(const State& state, const std::string& key) {
  const auto found = state.find(key);
  if (found == state.end() || found->second.dtype() != float64 || found->second.size() != 1)
    fail<DataLossError>(
        "[load] the checkpoint has no number '{}' of a callback; are the callbacks the same?", key);
  return found->second.item<double>();
}

}  // namespace tandem::callbacks
