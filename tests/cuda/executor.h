// Runs grids of threads on the host, so that kernels can be tested where there is no GPU.
// on_host/cuda_runtime.h gives kernels CUDA's language on top of it.
//
// One grid at a time runs in a process, its blocks one after another, the threads of a block as
// fibers that give way to each other where they wait. Threads begin in a shuffled order, always the
// same, and blocks in descending order, so that a kernel that relies on an order shows it.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace tandem::executor {

inline constexpr int kLanes = 32;  // of a warp

// A kernel that does what CUDA leaves undefined, or would hang.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The program or library in which `inside` lies has kernels. As on a GPU, nothing is in their
// shared memory when a block begins: it is filled with bytes that are NaN, -1 and no address.
bool add_kernels(const void* inside);

// Calls `thread` once for each thread of the grid, with threadIdx and the like set, and returns
// when all have returned. Throws what the first of them throws, a KernelError of the functions
// below among others.
void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

// For the threads of a grid alone.

// Waits for all threads of the block; none may have returned.
void block_barrier();

using Values = std::array<std::uint64_t, kLanes>;
// Waits until all lanes of `mask`, which must be in it and may not have returned, have called this
// with the same mask and name; what each has brought.
Values exchange(const char* intrinsic, unsigned mask, std::uint64_t mine);

int my_lane();

}  // namespace tandem::executor
