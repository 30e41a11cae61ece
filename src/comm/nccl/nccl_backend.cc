#include "comm/nccl/nccl_backend.h"

#include "core/module.h"
#include "core/status.h"

namespace tandem {

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
  const auto make = load<Backend*(NcclOptions*)>(kNcclModule, "tandem_make_nccl_backend");
  return std::unique_ptr<Backend>(make(&options));
}

}  // namespace tandem
