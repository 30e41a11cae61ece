// A stream of CUDA's as the runtime sees it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>

#include "device/cuda/module/event_pool.h"
#include "device/cuda/module/fault.h"
#include "device/shared_failure.h"
#include "device/stream.h"

namespace tandem::cuda {

class CudaStream final : public Stream {
 public:
  // On GPU `ordinal`. `priority`: as in LogicalGpuOptions.
  CudaStream(int ordinal, std::optional<int> priority);
  ~CudaStream() override;  // finishes the queued work first
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Execution execution() const override { return Execution::kNative; }
  void* native_handle() const override { return stream_; }
  // The task runs on a thread of the driver's, while the GPU waits: it must not call CUDA, nor give
  // back memory of a device.
  void enqueue(std::function<void()> task) override;
  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;

  // What waits for the stream or one of its events, now or next, throws this, unless something else
  // has by then.
  void fail(std::shared_ptr<SharedFailure> failure);

  cudaStream_t handle() const { return stream_; }
  // Where kernels on this stream tell of values that they refuse.
  Fault* fault() const;

 private:
  class Tasks;
  class RecordedEvent;

  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<EventPool> events_;  // shared with the events, as the tasks are
  std::shared_ptr<Tasks> tasks_;
};

}  // namespace tandem::cuda
