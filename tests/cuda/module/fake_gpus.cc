// The GPUs of the module that replaces libtandem_cuda.so in tests without a GPU: FAKE_CUDA_GPUS
// (default 2) small ones.
#include "core/env.h"
#include "cuda/fake_cuda.h"

namespace tandem::fake_cuda {
namespace {

[[maybe_unused]] const bool kSet = [] {
  const auto count = static_cast<std::size_t>(env_int("FAKE_CUDA_GPUS", 0, 64).value_or(2));
  set_gpus(std::vector(count, Gpu{.memory = std::size_t{1} << 30}));
  return true;
}();

}  // namespace
}  // namespace tandem::fake_cuda
