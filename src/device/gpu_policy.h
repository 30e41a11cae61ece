// Properties that real and emulated GPUs share.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "device/bfc_allocator.h"
#include "device/physical_gpu.h"

namespace tandem {

// Stream priorities that CUDA offers on every GPU; emulated GPUs accept the same.
inline constexpr PriorityRange kGpuPriorities = {.most_urgent = -5, .least_urgent = 0};

// Copies up to this size never make the host wait for the stream.
inline constexpr std::size_t kKeptInQueue = std::size_t{64} << 10;

// The allocator options of a logical GPU: name, limit and growth. `drain` and `drained_thread`: see
// BfcOptions; the latter for backends whose queued work holds memory.
BfcOptions gpu_allocator_options(const LogicalGpuOptions& options, std::function<void()> drain,
                                 std::thread::id drained_thread = {});

}  // namespace tandem
