// Work of a stream as a graph of CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "device/native_gpu.h"

namespace tandem::cuda {

class CudaGraph final : public RecordedWork {
 public:
  // Of `graph`, to be launched on `stream` of GPU `ordinal`.
  CudaGraph(int ordinal, cudaStream_t stream, cudaGraph_t graph);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override;
  // Takes the parameters of `graph`; false where that has other nodes.
  bool update(cudaGraph_t graph);

 private:
  const int ordinal_;
  const cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

// What a thread's calls on a stream of the recording's own leave behind, instead of running.
class Recording {
 public:
  explicit Recording(int ordinal);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  cudaStream_t stream() const { return stream_; }
  cudaGraph_t end();  // of which the recording keeps hold

  // Throws, naming `what`, where this thread records: work that goes elsewhere than to the
  // recording's stream would be done once, and be missing ever after.
  static void refuse(const char* what);
  // Whether this thread records.
  static bool active();

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  bool recording_ = false;
};

}  // namespace tandem::cuda
