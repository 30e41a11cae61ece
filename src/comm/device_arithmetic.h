// The arithmetic of collectives in device memory, ordered with the other work on the device's
// stream.
#pragma once

#include <span>

#include "comm/combine.h"
#include "comm/communicator.h"
#include "device/native_gpu.h"

namespace tandem {

// combine() and divide() on the device's stream. The elements are in memory that `device` can
// access.
void combine_on(DeviceImpl& device, std::span<const void* const> inputs,
                std::span<void* const> outputs, std::int64_t count, DType dtype, ReduceOp op,
                CombineOrder order);
void divide_on(DeviceImpl& device, std::span<const Buffer> parts, int by);

// The kernels for devices whose memory the host cannot access. A module registers them when it is
// loaded.
struct NativeArithmetic {
  void (*combine)(NativeGpu& gpu, std::span<const void* const> inputs,
                  std::span<void* const> outputs, std::int64_t count, DType dtype, ReduceOp op,
                  CombineOrder order) = nullptr;
  void (*divide)(NativeGpu& gpu, const Buffer& part, int by) = nullptr;
};
void register_native_arithmetic(const NativeArithmetic& arithmetic);

}  // namespace tandem
