// Runs grids of threads on the host, so that kernels can be tested without a GPU.
// on_host/cuda_runtime.h implements CUDA's language on top of it.
//
// A process runs one grid at a time, and its blocks one after another. The threads of a block are
// fibers, which switch when they wait. Threads start in a shuffled order, always the same, and
// blocks in descending order, to expose kernels that rely on an order.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace tandem::executor {

inline constexpr int kLanes = 32;  // threads per warp

// A kernel whose behaviour CUDA leaves undefined, or that would hang.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Registers a program or library with kernels; `inside` is an address in it. As on a GPU, shared
// memory is uninitialised when a block starts: it is filled with bytes that are NaN, -1 and an
// invalid address.
bool add_kernels(const void* inside);

// Calls `thread` once for each thread of the grid, with threadIdx etc. set, and returns when all
// calls have returned. Throws the first exception of a thread, for instance a KernelError of the
// functions below.
void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

// For threads of a grid only.

// Waits for all threads of the block; none may have returned.
void block_barrier();

using Values = std::array<std::uint64_t, kLanes>;
// Waits until all lanes in `mask` have called this with the same mask and name, and returns their
// values, which are valid until the lane's next call. The caller must be in the mask, and no lane
// of it may have returned.
const Values& exchange(const char* intrinsic, unsigned mask, std::uint64_t mine);

int my_lane();

}  // namespace tandem::executor
