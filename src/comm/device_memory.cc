#include "comm/device_memory.h"

#include "device/memory_report.h"

namespace tandem {
namespace {

std::shared_ptr<void> held(DeviceImpl& device, void* memory) {
  return {memory, [&device](void* block) { device.allocator().deallocate(block); }};
}

}  // namespace

std::shared_ptr<void> allocate_on(DeviceImpl& device, std::size_t bytes, const char* op,
                                  const char* what) {
  if (bytes == 0) return nullptr;
  void* memory = device.allocator().allocate(bytes);
  if (!memory) throw_out_of_memory(device, {.what = what, .op = op, .bytes = bytes});
  return held(device, memory);
}

std::shared_ptr<void> try_allocate_on(DeviceImpl& device, std::size_t bytes) {
  void* memory = device.allocator().try_allocate(bytes);
  return memory ? held(device, memory) : nullptr;
}

}  // namespace tandem
