// Copies from the host that go on while a GPU computes.
#pragma once

#include <utility>
#include <vector>

#include "device/native_gpu.h"

namespace tandem {

// Copies that may still be under way. What they write must not be used, nor given back, before
// join().
class CopiesAhead {
 public:
  // What is enqueued on the devices' streams from now on sees them.
  void join() {
    for (const auto& [gpu, copied] : std::exchange(last_, {})) gpu->stream().wait(copied);
  }

 private:
  friend class CopyAheadScope;
  std::vector<std::pair<NativeGpu*, Event>> last_;
};

// While it lives, copies from the host to real GPUs that this thread enqueues (host_to_device) go
// on streams of their own: behind what the GPU has been given by now, and beside what comes.
class CopyAheadScope {
 public:
  explicit CopyAheadScope(CopiesAhead& copies);
  ~CopyAheadScope();
  CopyAheadScope(const CopyAheadScope&) = delete;
  CopyAheadScope& operator=(const CopyAheadScope&) = delete;

  // The thread's innermost; null: none.
  static CopyAheadScope* current();
  void copy(NativeGpu& to, void* to_memory, const void* from_memory, std::size_t bytes);

 private:
  CopyAheadScope* const previous_;
  CopiesAhead& copies_;
};

}  // namespace tandem
