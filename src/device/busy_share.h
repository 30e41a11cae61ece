// The fraction of the time that devices work.
#pragma once

#include <optional>

#include "device/device.h"

namespace tandem {

// The fraction of the time since `device` was made, or since reset_busy_share(), in which its
// stream computed or copied. Null if the backend does not measure it: only emulated GPUs do.
// Defined in device/emulated/.
std::optional<double> busy_share(DeviceImpl& device);
void reset_busy_share(DeviceImpl& device);

}  // namespace tandem
