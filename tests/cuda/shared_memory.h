// Where the shared memory of kernels is that run on the host (cuda/executor.h): `__shared__`
// variables are static ones of their functions there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::executor {

// The `__shared__` variables of a program or a library, by its symbols. on_host/cuda_runtime.h has
// a constant beside each, whose name begins with kSharedMarker: they are the other static variables
// of the functions in which such constants are.
inline constexpr const char* kSharedMarker = "tandem_shared_memory_";
// Throws std::runtime_error where the file has no symbols. `inside`: an address in it.
std::vector<std::span<std::byte>> shared_memory_of(const void* inside);

}  // namespace tandem::executor
