#include "device/cuda/module/event_pool.h"

#include "device/cuda/module/check.h"

namespace tandem::cuda {

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  make_current(ordinal_);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

void EventPool::give_back(cudaEvent_t event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  } catch (const std::bad_alloc&) {
    cudaEventDestroy(event);
  }
}

bool passed(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // not an error: clears it, so that the next call does not return it
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}

}  // namespace tandem::cuda
