// A fake of the CUDA runtime functions that the backend calls, on host memory and emulated streams,
// to test the backend without a GPU. Kernels run in stream order on the executor. It records which
// threads create contexts, and fails on request.
//
// An invalid kernel (KernelError) breaks all GPUs permanently, as in CUDA: later calls return
// cudaErrorLaunchFailure, with the cause in its message. With CUDA_LAUNCH_BLOCKING=1, work on a
// GPU's memory is done when the call returns, so AddressSanitizer knows what is allocated.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tandem::fake_cuda {

struct Gpu {
  std::string name = "Fake GPU";
  std::size_t memory = std::size_t{16} << 30;
  int major = 9, minor = 0;
  bool reaches_peers = true;

  bool has_context = false;
  std::size_t in_use = 0;
  std::vector<int> peers;  // devices with peer access
  int last_priority = 0;   // of the stream created last
};

// From now on these are the GPUs. `error`: the result of discovery.
void set_gpus(std::vector<Gpu> gpus, cudaError_t error = cudaSuccess);
Gpu gpu(int ordinal);
// Breaks the GPUs, as an invalid kernel does.
void break_gpus(const std::string& why);
// If this thread records, invalidates the recording and returns true.
bool spoil_recording();

// Runs `task` in stream order, or records it.
void enqueue(cudaStream_t stream, std::function<void()> task);
// Makes later work on `stream` wait for the current work of `earlier`.
void follow(cudaStream_t stream, cudaStream_t earlier);
// How often graphs were launched, created and updated.
struct GraphCounts {
  int launched = 0, made = 0, updated = 0;
};
GraphCounts graph_counts();
// Host actions outside of graphs: kernels and copies that it enqueued individually on GPUs, copies
// to or from its memory, and calls that blocked it until a GPU was done. And the graphs that it
// asked cuDNN to run, recorded or not.
struct HostCounts {
  int enqueued = 0, copied = 0, waited = 0, cudnn = 0;
};
HostCounts host_counts();
void count_cudnn_run();
// The number of copies to or from host memory on this stream.
int copied_on(cudaStream_t stream);
// Launches a kernel; `thread` contains it and its arguments.
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

}  // namespace tandem::fake_cuda
