#include "device/cpu/cpu_device.h"

#include <cstring>
#include <fstream>
#include <utility>

#include "device/idle_memory.h"
#include "device/mmap_memory.h"

namespace tandem {

CpuDevice::CpuDevice(DeviceName name, int intra_op_threads)
    : DeviceImpl(std::move(name), DeviceBackend::kCpu, intra_op_threads),
      allocator_({.name = "CPU_" + std::to_string(index()) + "_bfc",
                  .total_bytes = static_cast<std::size_t>(physical_memory()),
                  .drain = [this] { release_idle_memory(*this); },
                  .poison_freed = true},
                 std::make_unique<MmapRegionSource>()) {}

void CpuDevice::copy_from_host(void* device_memory, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  std::memcpy(device_memory, host, bytes);
}

void CpuDevice::copy_to_host(void* host, const void* device_memory, std::size_t bytes) {
  if (bytes == 0) return;
  std::memcpy(host, device_memory, bytes);
}

void CpuDevice::copy_from_peer(void* to, DeviceImpl&, const void* peer_memory, std::size_t bytes) {
  if (bytes == 0) return;
  std::memcpy(to, peer_memory, bytes);
}

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  return "CPU";
}

}  // namespace tandem
