#include "comm/nccl/nccl_backend.h"

#include "core/module.h"
#include "core/status.h"

namespace tandem {

bool has_nccl() { return can_load(kNcclModule); }

std::unique_ptr<Backend> make_nccl_backend(GroupOptions options, NcclDevice where) {
  options.check_rank("nccl");
  const DeviceImpl* device = where.device;
  if (!device || (device->backend() != DeviceBackend::kCuda && !device->host_accessible()))
    fail<InvalidArgumentError>(
        "[nccl] expected a device whose memory CUDA or the host reaches, got {}",
        device ? device->full_name() : "none");
  const auto make =
      load<Backend*(GroupOptions*, NcclDevice*)>(kNcclModule, "tandem_make_nccl_backend");
  return std::unique_ptr<Backend>(make(&options, &where));
}

}  // namespace tandem
