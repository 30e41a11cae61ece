// What real and emulated GPUs have in common.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "device/bfc_allocator.h"
#include "device/physical_gpu.h"

namespace tandem {

// Of streams. What CUDA offers on every GPU; emulated ones take the same numbers.
inline constexpr PriorityRange kGpuPriorities = {.most_urgent = -5, .least_urgent = 0};

// Copies up to this size never make the host wait for the stream.
inline constexpr std::size_t kKeptInQueue = std::size_t{64} << 10;

// The allocator of a logical GPU: its name, limit and growth. `drain`: frees what it can, where
// memory ran out; `drained_thread`: of a backend whose queued work holds memory (BfcOptions).
BfcOptions gpu_allocator_options(const LogicalGpuOptions& options, std::function<void()> drain,
                                 std::thread::id drained_thread = {});

}  // namespace tandem
