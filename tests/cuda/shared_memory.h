// Finds the shared memory of kernels that run on the host (cuda/executor.h): `__shared__` variables
// are static variables of their functions there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::executor {

// The `__shared__` variables of a program or library, from its symbols. on_host/cuda_runtime.h
// defines a constant beside each, whose name begins with kSharedMarker. The variables are the other
// static variables of functions with such a constant.
inline constexpr const char* kSharedMarker = "tandem_shared_memory_";
// Throws std::runtime_error if the file has no symbols. `inside`: an address in it.
std::vector<std::span<std::byte>> shared_memory_of(const void* inside);

}  // namespace tandem::executor
