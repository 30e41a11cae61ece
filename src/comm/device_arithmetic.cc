#include "comm/device_arithmetic.h"

#include <vector>

#include "core/status.h"

namespace tandem {
namespace {

// Set before the first such device exists, and read only afterwards.
NativeArithmetic& native() {
  static auto& arithmetic = *new NativeArithmetic;
  return arithmetic;
}

const NativeArithmetic& native_for(const DeviceImpl& device) {
  if (!native().combine)
    fail<InternalError>("[comm] no kernels that combine values in the memory of {}",
                        device.full_name());
  return native();
}

}  // namespace

void register_native_arithmetic(const NativeArithmetic& arithmetic) { native() = arithmetic; }

void combine_on(DeviceImpl& device, std::span<const void* const> inputs,
                std::span<void* const> outputs, std::int64_t count, DType dtype, ReduceOp op,
                CombineOrder order) {
  if (count == 0) return;
  if (NativeGpu* gpu = as_native(device)) {
    native_for(device).combine(*gpu, inputs, outputs, count, dtype, op, order);
    return;
  }
  device.stream().enqueue([from = std::vector<const void*>(inputs.begin(), inputs.end()),
                           to = std::vector<void*>(outputs.begin(), outputs.end()), count, dtype,
                           op, order] { combine(from, to, count, dtype, op, order); });
}

void divide_on(DeviceImpl& device, std::span<const Buffer> parts, int by) {
  if (NativeGpu* gpu = as_native(device)) {
    for (const Buffer& part : parts)
      if (part.count > 0) native_for(device).divide(*gpu, part, by);
    return;
  }
  device.stream().enqueue([kept = std::vector<Buffer>(parts.begin(), parts.end()), by] {
    for (const Buffer& part : kept) divide(part.data, part.count, part.dtype, by);
  });
}

}  // namespace tandem
