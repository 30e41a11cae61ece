#include "comm/nccl/module/pinned.h"

#include <bit>
#include <cstring>
#include <mutex>

#include "comm/nccl/module/connection.h"

namespace tandem::nccl_backend {

struct PinnedPool::Blocks {
  std::mutex mutex;
  std::multimap<std::size_t, void*> free;
  ~Blocks() {
    for (const auto& [bytes, block] : free) cudaFreeHost(block);
  }
};

PinnedPool::PinnedPool() : blocks_(std::make_shared<Blocks>()) {}

std::shared_ptr<void> PinnedPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  void* block = nullptr;
  {
    const std::lock_guard lock(blocks_->mutex);
    if (const auto found = blocks_->free.find(size); found != blocks_->free.end()) {
      block = found->second;
      blocks_->free.erase(found);
    }
  }
  if (!block) check(cudaHostAlloc(&block, size, cudaHostAllocPortable), "cudaHostAlloc");
  return {block, [blocks = blocks_, size](void* done) {
            const std::lock_guard lock(blocks->mutex);
            blocks->free.emplace(size, done);
          }};
}

namespace {

bool gpu_reaches(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();  // clears the error, so that the next call does not return it
    return false;
  }
  return attributes.type != cudaMemoryTypeUnregistered;
}

}  // namespace

GpuBuffers::GpuBuffers(std::span<const Buffer> buffers, PinnedPool& pool)
    : buffers_(buffers), placed_(buffers.begin(), buffers.end()) {
  constexpr std::size_t kAlignment = 256;
  std::vector<std::size_t> at;
  std::size_t bytes = 0;
  for (Buffer& buffer : placed_) {
    at.push_back(bytes);
    if (buffer.count == 0 || gpu_reaches(buffer.data)) continue;
    buffer.data = nullptr;
    bytes += (buffer.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (bytes == 0) return;
  block_ = pool.take(bytes);
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].count > 0 && !placed_[i].data)
      placed_[i].data = static_cast<std::byte*>(block_.get()) + at[i];
}

void GpuBuffers::copy_in() const {
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].data != buffers_[i].data)
      std::memcpy(placed_[i].data, buffers_[i].data, buffers_[i].bytes());
}

void GpuBuffers::copy_out() const {
  for (std::size_t i = 0; i < placed_.size(); ++i)
    if (placed_[i].data != buffers_[i].data)
      std::memcpy(buffers_[i].data, placed_[i].data, buffers_[i].bytes());
}

}  // namespace tandem::nccl_backend
