#include "device/cuda/module/pinned_staging.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "device/cuda/module/check.h"
#include "device/gpu_policy.h"
#include "device/native_gpu.h"

namespace tandem::cuda {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;

}  // namespace

PinnedStaging::PinnedStaging(int ordinal, std::size_t pieces)
    : ordinal_(ordinal),
      small_{.bytes = kKeptInQueue, .limit = std::numeric_limits<std::size_t>::max()},
      large_{.bytes = kPiece, .limit = pieces} {}

PinnedStaging::~PinnedStaging() {
  for (StagingBlocks* blocks : {&small_, &large_}) {
    for (void* block : blocks->free) cudaFreeHost(block);
    for (const Busy& busy : blocks->busy) cudaFreeHost(busy.block);
  }
}

void* PinnedStaging::take(StagingBlocks& blocks) {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!blocks.busy.empty() && blocks.busy.front().event.done()) {
      blocks.free.push_back(blocks.busy.front().block);
      blocks.busy.pop_front();
    }
    if (!blocks.free.empty()) {
      void* block = blocks.free.back();
      blocks.free.pop_back();
      return block;
    }
    if (blocks.made < blocks.limit || blocks.busy.empty()) break;
    const StreamEvent oldest = blocks.busy.front().event;
    lock.unlock();
    oldest.wait();
    lock.lock();
  }
  ++blocks.made;
  lock.unlock();
  const std::lock_guard alone(NativeGpu::multi_gpu_launch_mutex());
  make_current(ordinal_);
  void* block = nullptr;
  check(cudaHostAlloc(&block, blocks.bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return block;
}

void PinnedStaging::give_back(StagingBlocks& blocks, void* block, StreamEvent event) {
  const std::lock_guard lock(mutex_);
  blocks.busy.push_back({block, std::move(event)});
}

void PinnedStaging::copy_in_piece(StagingBlocks& blocks, void* device_memory, const void* host,
                                  std::size_t bytes, CudaStream& stream) {
  void* block = take(blocks);
  std::memcpy(block, host, bytes);
  make_current(ordinal_);
  check(cudaMemcpyAsync(device_memory, block, bytes, cudaMemcpyHostToDevice, stream.handle()),
        "cudaMemcpyAsync");
  give_back(blocks, block, stream.record());
}

void PinnedStaging::copy_in(void* device_memory, const void* host, std::size_t bytes,
                            CudaStream& stream) {
  if (bytes <= kKeptInQueue) return copy_in_piece(small_, device_memory, host, bytes, stream);
  for (std::size_t at = 0; at < bytes; at += kPiece)
    copy_in_piece(large_, static_cast<std::byte*>(device_memory) + at,
                  static_cast<const std::byte*>(host) + at, std::min(kPiece, bytes - at), stream);
}

void PinnedStaging::copy_out(void* host, const void* device_memory, std::size_t bytes,
                             CudaStream& stream) {
  if (bytes > kKeptInQueue) {  // the driver stages these itself, and waits
    make_current(ordinal_);
    check(cudaMemcpyAsync(host, device_memory, bytes, cudaMemcpyDeviceToHost, stream.handle()),
          "cudaMemcpyAsync");
    return stream.synchronize();
  }
  void* block = take(small_);
  make_current(ordinal_);
  check(cudaMemcpyAsync(block, device_memory, bytes, cudaMemcpyDeviceToHost, stream.handle()),
        "cudaMemcpyAsync");
  stream.enqueue([this, host, block, bytes] {
    std::memcpy(host, block, bytes);
    give_back(small_, block, StreamEvent());
  });
}

// A borrowed block, which is returned when the copy is done.
class PinnedStaging::Piece {
 public:
  Piece(PinnedStaging& staging, StagingBlocks& blocks)
      : staging_(staging), blocks_(blocks), block_(staging.take(blocks)) {}
  ~Piece() { staging_.give_back(blocks_, block_, std::move(copied_)); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  void fill(const void* device_memory, std::size_t bytes, CudaStream& stream) {
    make_current(staging_.ordinal_);
    check(cudaMemcpyAsync(block_, device_memory, bytes, cudaMemcpyDeviceToHost, stream.handle()),
          "cudaMemcpyAsync");
    copied_ = stream.record();
  }
  void take_out(void* host, std::size_t bytes) const {
    copied_.wait();
    std::memcpy(host, block_, bytes);
  }

 private:
  PinnedStaging& staging_;
  StagingBlocks& blocks_;
  void* block_;
  StreamEvent copied_;
};

void PinnedStaging::read(void* host, const void* device_memory, std::size_t bytes,
                         CudaStream& stream) {
  StagingBlocks& blocks = bytes <= kKeptInQueue ? small_ : large_;
  const std::size_t pieces = (bytes + blocks.bytes - 1) / blocks.bytes;
  const auto bytes_of = [&](std::size_t i) {
    return std::min(blocks.bytes, bytes - i * blocks.bytes);
  };
  std::array<std::optional<Piece>, 2> on_their_way;
  for (std::size_t i = 0; i <= pieces; ++i) {
    if (i < pieces)
      on_their_way[i % 2]
          .emplace(*this, blocks)
          .fill(static_cast<const std::byte*>(device_memory) + i * blocks.bytes, bytes_of(i),
                stream);
    if (i > 0)
      on_their_way[(i - 1) % 2]->take_out(static_cast<std::byte*>(host) + (i - 1) * blocks.bytes,
                                          bytes_of(i - 1));
  }
}

}  // namespace tandem::cuda
