// The door to the CUDA backend, which is a module: loaded only where there is a driver.
#include <dlfcn.h>

#include "core/log.h"
#include "core/module.h"
#include "device/physical_gpu.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

constexpr Module kModule = {.backend = "cuda",
                            .file = "libtandem_cuda.so",
                            .factory = "tandem_discover_cuda",
                            .library = "of NVIDIA's CUDA toolkit",
                            .runtime = "of NVIDIA's cuBLAS"};

// The driver's library comes with the driver, never with the toolkit.
bool driver_present() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr; }

}  // namespace

// A GPU that cannot be used is no reason for a program that may not want one to end. Called once
// per process, so that there is one warning.
PhysicalGpus discover_cuda() {
  PhysicalGpus gpus;
  if (!driver_present()) return gpus;
  try {
    using Factory = void (*)(PhysicalGpus*);
    reinterpret_cast<Factory>(load_factory(kModule))(&gpus);
  } catch (const UnavailableError& error) {
    gpus.clear();
    logging::warn("GPUs are not used: {}", error.what());
  }
  return gpus;
}

}  // namespace tandem
