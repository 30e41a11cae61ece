#include "comm/nccl/nccl_backend.h"

#include "core/module.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr Module kNcclModule = {.backend = "nccl",
                                .file = "libtandem_nccl.so",
                                .factory = "tandem_make_nccl_backend",
                                .library = "libnccl-dev, with the CUDA toolkit,",
                                .runtime = "libnccl2"};

}  // namespace

bool has_nccl() { return can_load(kNcclModule); }

std::unique_ptr<Backend> make_nccl_backend(NcclOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    fail<InvalidArgumentError>("[nccl] expected a rank of 0 to {}, got {}", options.size - 1,
                               options.rank);
  if (!options.device ||
      (options.device->backend() != DeviceBackend::kCuda && !options.device->host_accessible()))
    fail<InvalidArgumentError>(
        "[nccl] expected a device whose memory CUDA or the host reaches, got {}",
        options.device ? options.device->full_name() : "none");
  using Factory = Backend* (*)(NcclOptions*);
  const auto factory = reinterpret_cast<Factory>(load_factory(kNcclModule));
  return std::unique_ptr<Backend>(factory(&options));
}

}  // namespace tandem
