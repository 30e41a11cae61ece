// Recorded work as a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "device/native_gpu.h"

namespace tandem::cuda {

class CudaGraph final : public RecordedWork {
 public:
  // Instantiates `graph` for launches on `stream` of GPU `ordinal`.
  CudaGraph(int ordinal, cudaStream_t stream, cudaGraph_t graph);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override;
  // Takes the parameters of `graph`; false if that has different nodes.
  bool update(cudaGraph_t graph);

 private:
  const int ordinal_;
  const cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

// Captures the calls that a thread makes on a separate stream, instead of running them.
class StreamCapture {
 public:
  explicit StreamCapture(int ordinal);
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  cudaStream_t stream() const { return stream_; }
  cudaGraph_t end();  // the recording keeps ownership

  // Throws, naming `what`, if this thread is recording: work on other streams would run once and be
  // missing in every replay.
  static void refuse(const char* what);
  // Whether this thread is recording.
  static bool active();

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  bool recording_ = false;
};

}  // namespace tandem::cuda
