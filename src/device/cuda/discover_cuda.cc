// Loads the CUDA backend, a module, if there is a driver.
#include <dlfcn.h>

#include "core/log.h"
#include "core/module.h"
#include "device/physical_gpu.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

// The driver library is installed with the driver, never with the toolkit.
bool driver_present() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr; }

}  // namespace

// An unusable GPU must not end a program that may not need one. Called once per process, so there
// is one warning.
PhysicalGpus discover_cuda() {
  PhysicalGpus gpus;
  if (!driver_present()) return gpus;
  try {
    load<void(PhysicalGpus*)>(kCudaModule, "tandem_discover_cuda")(&gpus);
  } catch (const UnavailableError& error) {
    gpus.clear();
    logging::warn("GPUs are not used: {}", error.what());
  }
  return gpus;
}

}  // namespace tandem
