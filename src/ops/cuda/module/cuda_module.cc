// What libtandem loads.
#include "device/cuda/module/cuda_gpus.h"

// Fills in the GPUs that there are. Throws UnavailableError.
extern "C" __attribute__((visibility("default"))) void tandem_discover_cuda(
    tandem::PhysicalGpus* gpus) {
  *gpus = tandem::cuda::find_gpus();
}
