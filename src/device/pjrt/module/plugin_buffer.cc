#include "device/pjrt/module/plugin_buffer.h"

#include <vector>

#include "core/status.h"
#include "device/pjrt/module/check.h"
#include "device/pjrt/module/event.h"

namespace tandem::pjrt {

PluginBuffer::~PluginBuffer() {
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_Destroy);
  args.buffer = handle_;
  static_cast<void>(client_->api().PJRT_Buffer_Destroy(&args));
}

void PluginBuffer::to_host(void* host, std::size_t bytes) {
  const std::size_t needed = static_cast<std::size_t>(shape_.num_elements()) * size_of(dtype_);
  if (bytes < needed)
    fail<InvalidArgumentError>("[PJRT] expected host memory of {} bytes, got {}", needed, bytes);
  wait_for_elements();
  // Row-major, whatever the layout on the device is.
  std::vector<std::int64_t> minor_to_major;
  for (int axis = shape_.rank(); axis-- > 0;) minor_to_major.push_back(axis);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_ToHostBuffer);
  args.src = handle_;
  args.host_layout = &layout;
  args.dst = host;
  args.dst_size = bytes;
  const PJRT_Api& api = client_->api();
  check(api, api.PJRT_Buffer_ToHostBuffer(&args), "copying a tensor to the host");
  await(api, args.event, "copying a tensor to the host");  // for ever: it writes to `host`
}

void PluginBuffer::wait_for_elements() const {
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_ReadyEvent);
  args.buffer = handle_;
  const PJRT_Api& api = client_->api();
  check(api, api.PJRT_Buffer_ReadyEvent(&args), "computing a tensor");
  await_for(api, args.event, "computing a tensor", client_->time_limit());
}

std::shared_ptr<Buffer> PluginBuffer::copy_to(int device) {
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_CopyToDevice);
  args.buffer = handle_;
  args.dst_device = client_->device(device);
  const PJRT_Api& api = client_->api();
  check(api, api.PJRT_Buffer_CopyToDevice(&args), "copying a tensor between devices");
  return std::make_shared<PluginBuffer>(client_, args.dst_buffer, dtype_, shape_, device);
}

}  // namespace tandem::pjrt
