// The GPUs of the module that stands in for libtandem_cuda.so where its kernels are tested without
// a GPU: two small ones.
#include "cuda/fake_cuda.h"

namespace tandem::fake_cuda {
namespace {

[[maybe_unused]] const bool kSet = [] {
  set_gpus({{.memory = std::size_t{1} << 30}, {.memory = std::size_t{1} << 30}});
  return true;
}();

}  // namespace
}  // namespace tandem::fake_cuda
