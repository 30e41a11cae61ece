// Pinned host memory for copies between the host and a GPU.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "device/cuda/module/cuda_stream.h"

namespace tandem::cuda {

// Has small blocks, for copies that must not wait for the stream, and large ones, for the pieces of
// larger copies. A block is reused once the GPU has passed the copy. Thread-safe.
class PinnedStaging {
 public:
  // `pieces`: how many 4 MiB pieces of large copies may be in flight before the host waits.
  explicit PinnedStaging(int ordinal, std::size_t pieces = 4);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // Enqueues on `stream`. The host memory may be reused on return.
  void copy_in(void* device_memory, const void* host, std::size_t bytes, CudaStream& stream);
  // A small copy (kKeptInQueue) is complete when the stream has passed it; a larger one on return.
  void copy_out(void* host, const void* device_memory, std::size_t bytes, CudaStream& stream);
  // After the current work of `stream`; complete on return. Each piece is copied from pinned memory
  // while the next is in flight.
  void read(void* host, const void* device_memory, std::size_t bytes, CudaStream& stream);

 private:
  struct Busy {
    void* block;
    StreamEvent event;
  };
  struct StagingBlocks {
    std::size_t bytes;
    std::size_t limit;  // maximum number; beyond it, waits for the oldest copy
    std::size_t made = 0;
    std::vector<void*> free;
    std::deque<Busy> busy;  // in the order of the stream
  };
  class Piece;

  void* take(StagingBlocks& blocks);
  void give_back(StagingBlocks& blocks, void* block, StreamEvent event);
  void copy_in_piece(StagingBlocks& blocks, void* device_memory, const void* host,
                     std::size_t bytes, CudaStream& stream);

  const int ordinal_;
  std::mutex mutex_;
  StagingBlocks small_, large_;
};

}  // namespace tandem::cuda
