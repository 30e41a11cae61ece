// A CUDA stream as a Stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>

#include "device/cuda/module/fault.h"
#include "device/shared_failure.h"
#include "device/stream.h"

namespace tandem::cuda {

class CudaStream final : public Stream {
 public:
  // On GPU `ordinal`. `priority`: see LogicalGpuOptions.
  CudaStream(int ordinal, std::optional<int> priority);
  ~CudaStream() override;  // finishes the queued work
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Execution execution() const override { return Execution::kNative; }
  void* native_handle() const override { return stream_; }
  // The task runs on a driver thread while the GPU waits. It must not call CUDA or free device
  // memory.
  void enqueue(std::function<void()> task) override;
  StreamEvent record() override;
  void wait(const StreamEvent& event) override;
  void synchronize() override;

  // The current or next wait on the stream or one of its events throws this failure, unless another
  // wait has thrown it before.
  void fail(std::shared_ptr<SharedFailure> failure);

  cudaStream_t handle() const { return stream_; }
  // Where this stream's kernels report invalid values.
  Fault* fault() const;

 private:
  class EventPool;
  class Tasks;
  class RecordedEvent;

  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<EventPool> events_;  // shared with the events, as the tasks are
  std::shared_ptr<Tasks> tasks_;
};

}  // namespace tandem::cuda
