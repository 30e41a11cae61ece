// The arithmetic of collectives in the memory of a device, in order with the work on its stream.
#pragma once

#include <span>

#include "comm/combine.h"
#include "comm/communicator.h"
#include "device/native_gpu.h"

namespace tandem {

// Enqueue combine() and divide() on the device's stream. The elements are in memory that work on
// `device` reaches.
void combine_on(Device& device, std::span<const void* const> inputs, std::span<void* const> outputs,
                std::int64_t count, DType dtype, ReduceOp op, CombineOrder order);
void divide_on(Device& device, std::span<const Buffer> parts, int by);

// The same as kernels, for devices whose memory no task of the host reaches. Of a module, which
// makes them known as it is loaded.
struct NativeArithmetic {
  void (*combine)(NativeGpu& gpu, std::span<const void* const> inputs,
                  std::span<void* const> outputs, std::int64_t count, DType dtype, ReduceOp op,
                  CombineOrder order) = nullptr;
  void (*divide)(NativeGpu& gpu, const Buffer& part, int by) = nullptr;
};
void register_native_arithmetic(const NativeArithmetic& arithmetic);

}  // namespace tandem
