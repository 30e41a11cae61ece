#include "device/native_gpu.h"

namespace tandem {

std::mutex& NativeGpu::multi_gpu_launch_mutex() {
  // never destroyed: devices also free memory at process exit
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace tandem
