// Copies between host memory and devices, and between devices.
#pragma once

#include <cstddef>

#include "device/device.h"

namespace tandem {

// Enqueue a copy, as DeviceImpl::copy_from_host and copy_to_host do, and record it in a running
// profile.
void host_to_device(DeviceImpl& to, void* to_memory, const void* from_memory, std::size_t bytes);
void device_to_host(void* to_memory, DeviceImpl& from, const void* from_memory, std::size_t bytes);

// Copies to host memory: after `written`, an event of the device, and concurrently with later work.
// A real GPU uses a separate stream. Complete on return; throws earlier errors.
void read_from(DeviceImpl& from, void* to_memory, const void* from_memory, std::size_t bytes,
               const StreamEvent& written);

// Copies between any two devices, ordered with the work on both: the copy waits for work that was
// enqueued on `to` and `from` before, and later work on either waits for the copy. If `to` is host
// accessible, the copy is complete on return.
void copy_between(DeviceImpl& to, void* to_memory, DeviceImpl& from, const void* from_memory,
                  std::size_t bytes);

}  // namespace tandem
