// A pool of CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

namespace tandem::cuda {

// For one GPU. Thread-safe.
class EventPool {
 public:
  explicit EventPool(int ordinal) : ordinal_(ordinal) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  cudaEvent_t take();
  void give_back(cudaEvent_t event) noexcept;

 private:
  const int ordinal_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// Whether the work before the event is done.
bool passed(cudaEvent_t event);

}  // namespace tandem::cuda
