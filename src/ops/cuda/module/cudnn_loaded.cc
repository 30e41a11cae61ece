#include "core/log.h"
#include "ops/cuda/module/cudnn_library.h"
#include "tandem/errors.h"

namespace tandem::cuda {

const CudnnLibrary* cudnn() {
  static const CudnnLibrary* const library = []() -> const CudnnLibrary* {
    try {
      return new CudnnLibrary(load_cudnn("libcudnn.so.9"));
    } catch (const UnavailableError& error) {
      logging::warn(
          "Convolutions and attention on GPUs are computed by Tandem's own kernels, which are "
          "slow: {}",
          error.what());
      return nullptr;
    }
  }();
  return library;
}

}  // namespace tandem::cuda
