#include "runtime/placement_errors.h"

#include <cstdlib>

#include "core/status.h"
#include "device/device_manager.h"

namespace tandem {

std::string missing_device(std::string_view what, const DeviceName& name, std::string_view text) {
  DeviceManager& manager = DeviceManager::get();
  std::string hint;
  if (name.type == "GPU" && manager.devices(DeviceType::kGpu, what).empty()) {
    hint =
        " The requested device appears to be a GPU, but there is none; TANDEM_EMULATED_GPUS=N "
        "makes N emulated ones.";
  } else if (name.id) {
    const DeviceImpl* nearest = nullptr;
    for (const DeviceImpl* device : manager.devices(what)) {
      if (device->name().type != name.type) continue;
      if (!nearest || std::abs(device->index() - *name.id) < std::abs(nearest->index() - *name.id))
        nearest = device;
    }
    if (nearest)
      hint = fmt::format(" The nearest is '/device:{}:{}'.", *name.type, nearest->index());
  }
  return fmt::format(
      "{} was explicitly assigned to '{}' but available devices are {}. Make sure the device "
      "specification refers to a valid device.{}",
      what, text, manager.describe_devices(), hint);
}

}  // namespace tandem
