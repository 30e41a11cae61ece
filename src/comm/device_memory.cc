#include "comm/device_memory.h"

#include "device/memory_report.h"

namespace tandem {

std::shared_ptr<void> allocate_on(Device& device, std::size_t bytes, const char* op,
                                  const char* what) {
  if (bytes == 0) return nullptr;
  void* memory = device.allocator().allocate(bytes);
  if (!memory) throw_out_of_memory(device, {.what = what, .op = op, .bytes = bytes});
  return {memory, [&device](void* block) { device.allocator().deallocate(block); }};
}

}  // namespace tandem
