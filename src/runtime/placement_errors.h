// Error messages that eager placement and the placer of graphs share.
#pragma once

#include <string>
#include <string_view>

#include "device/device_name.h"

namespace tandem {

// "NAME was explicitly assigned to 'DEVICE' but available devices are [...]. Make sure the device
// specification refers to a valid device.", and a hint: the nearest device, or how to get GPUs.
// `text`: the device as the user wrote it.
std::string missing_device(std::string_view what, const DeviceName& name, std::string_view text);

}  // namespace tandem
