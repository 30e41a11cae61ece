// Pinned memory through which copies between the host and a GPU go.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "device/cuda/module/cuda_stream.h"

namespace tandem::cuda {

// Blocks of two sizes, small ones for copies that must not wait for the stream, large ones for the
// pieces of the others. A block comes back when the GPU has passed the copy. Thread-safe.
class PinnedStaging {
 public:
  // `pieces`: how many pieces of 4 MiB of large copies may be on their way before the host waits.
  explicit PinnedStaging(int ordinal, std::size_t pieces = 4);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // Enqueue on `stream`. The host's memory may be reused on return.
  void copy_in(void* device_memory, const void* host, std::size_t bytes, CudaStream& stream);
  // A small copy (kKeptInQueue) is complete when the stream has passed it; a larger one on return.
  void copy_out(void* host, const void* device_memory, std::size_t bytes, CudaStream& stream);
  // Behind what is on `stream` by now; complete on return. Pieces are on their way while the one
  // before is taken out of pinned memory.
  void read(void* host, const void* device_memory, std::size_t bytes, CudaStream& stream);

 private:
  struct Busy {
    void* block;
    Event event;
  };
  struct Blocks {
    std::size_t bytes;
    std::size_t limit;  // so many at most; then the oldest copy is waited for
    std::size_t made = 0;
    std::vector<void*> free;
    std::deque<Busy> busy;  // in the order of the stream
  };
  class Piece;

  void* take(Blocks& blocks);
  void give_back(Blocks& blocks, void* block, Event event);
  void copy_in_piece(Blocks& blocks, void* device_memory, const void* host, std::size_t bytes,
                     CudaStream& stream);

  const int ordinal_;
  std::mutex mutex_;
  Blocks small_, large_;
};

}  // namespace tandem::cuda
