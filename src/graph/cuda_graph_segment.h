// Consecutive kernels of a lane on a real GPU, enqueued together as a CUDA graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/native_gpu.h"
#include "graph/program_step.h"
#include "op/device_args.h"

namespace tandem {

// The first run launches the kernels one by one, so that libraries choose and load their kernels.
// Later runs record a CUDA graph and launch it. A CUDA graph contains addresses. Those of feeds,
// variables and results may differ between runs, but often alternate between a few sets. So one
// CUDA graph is kept for each of the last few sets, and the oldest is updated for a new set.
//
// Attributes that change in each run (random keys, rates, steps) do not end a segment. Kernels read
// them from device memory that belongs to the CUDA graph (op/device_args.h). Changed values are
// copied there by one copy before the launch. The source of the copy is pinned memory that is not
// reused until the GPU has passed the copy, so the host does not wait. The alternative,
// cudaGraphExecKernelNodeSetParams, takes one call per kernel, and node handles that stream capture
// does not return.
//
// If replaying does not pay off, or a kernel cannot be captured, the kernels are launched one by
// one from then on, and the log says why. They are also launched one by one while a profile is
// taken, so that it has an event for each.
class CudaGraphSegment {
 public:
  // Whether a step can be part of a segment. Copies between devices and collectives cannot.
  static bool takes(const ProgramStep& step);
  // Whether CUDA graphs are enabled (TANDEM_CUDA_GRAPHS).
  static bool enabled();

  // REQUIRES: takes() each of `steps`, which run on the GPU.
  CudaGraphSegment(NativeGpu& gpu, std::vector<ProgramStep*> steps);
  ~CudaGraphSegment();
  CudaGraphSegment(const CudaGraphSegment&) = delete;
  CudaGraphSegment& operator=(const CudaGraphSegment&) = delete;

  std::size_t size() const { return steps_.size(); }
  // Whether the last CUDA graphs were never replayed, because addresses did not repeat.
  bool wasted() const { return wasted_ > 0; }
  // Drops the recorded CUDA graphs, whose addresses are no longer valid.
  void forget() { recorded_.clear(); }
  // Enqueues the kernels. Returns false, without any effect, if they must be launched one by one.
  bool run();

 private:
  struct SharedWorkspace;
  // Kernel arguments that change from run to run, in device memory.
  struct DeviceArgs {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    std::vector<DeviceArg> values;
    std::vector<std::byte>
        there;  // the bytes that the memory has; empty if nothing has been copied
  };
  struct Recording {
    std::vector<const void*> addresses;
    std::unique_ptr<RecordedWork> work;
    std::shared_ptr<SharedWorkspace> workspace;
    DeviceArgs device_args;
    std::uint64_t last_run = 0;
    bool replayed = false;
  };

  void find_addresses();
  void measure();
  void record();
  void update(DeviceArgs& device_args);
  void disable(const std::string& why);

  NativeGpu& gpu_;
  std::vector<ProgramStep*> steps_;
  std::vector<const void*> addresses_;  // of this run
  std::vector<Recording> recorded_;
  std::size_t workspace_ = 0;         // bytes that the kernels need
  std::size_t device_arg_bytes_ = 0;  // bytes of attributes that change
  std::vector<std::byte> now_;        // their bytes in this run
  std::uint64_t runs_ = 0;
  int wasted_ = 0;  // CUDA graphs recorded since the last replay
  bool disabled_ = false;
};

}  // namespace tandem
