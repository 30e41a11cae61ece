// CUDA's runtime, as far as the backend calls it, over the host's memory and emulated streams, so
// that the backend is tested where there is no GPU. Kernels run in stream order, by the executor.
// It tells who made contexts, and fails as it is told.
//
// What a kernel does wrong (KernelError) breaks all GPUs for good, as CUDA does: from then on calls
// give cudaErrorLaunchFailure, whose text tells what it was. With CUDA_LAUNCH_BLOCKING=1 what uses
// a GPU's memory is done when the call returns; the address sanitizer then knows what is
// allocated.
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
  std::vector<int> peers;  // whose memory it was allowed to reach
  int last_priority = 0;   // of the stream made last
};

// From here on these are the GPUs. `error`: what looking for them gives.
void set_gpus(std::vector<Gpu> gpus, cudaError_t error = cudaSuccess);
Gpu gpu(int ordinal);
// As a kernel would that does something wrong.
void break_gpus(const std::string& why);
// Where this thread records, what cannot be recorded; false elsewhere.
bool spoil_recording();

// Runs `task` in the order of the stream, or records it.
void enqueue(cudaStream_t stream, std::function<void()> task);
// What is enqueued on `stream` from now on waits for what `earlier` has now.
void follow(cudaStream_t stream, cudaStream_t earlier);
// How often graphs were launched, made, and changed.
struct GraphCounts {
  int launched = 0, made = 0, updated = 0;
};
GraphCounts graph_counts();
// What the host has done otherwise: kernels and copies on GPUs that it enqueued by themselves,
// copies to or from its memory, and calls that held it up until a GPU was there; and the graphs
// that it asked cuDNN to run, whether recorded or not.
struct HostCounts {
  int enqueued = 0, copied = 0, waited = 0, cudnn = 0;
};
HostCounts host_counts();
void count_cudnn_run();
// Of the copies to or from the host's memory, those on this stream.
int copied_on(cudaStream_t stream);
// A launch whose kernel and arguments `thread` holds.
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

}  // namespace tandem::fake_cuda
