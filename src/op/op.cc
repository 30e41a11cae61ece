#include "op/op.h"

#include <algorithm>
#include <memory>

#include "core/status.h"

namespace tandem {
namespace {

// Memory for kernels' intermediate results: kept by each thread, grown on demand.
struct ScratchArena {
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
    std::size_t used = 0;
  };
  std::vector<Block> blocks;

  void* take(std::size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    for (Block& block : blocks)
      if (block.bytes - block.used >= bytes) {
        void* memory = block.memory.get() + block.used;
        block.used += bytes;
        return memory;
      }
    const std::size_t size = std::max<std::size_t>(bytes, std::size_t{1} << 20);
    Block& block = blocks.emplace_back();
    block.memory.reset(static_cast<std::byte*>(::operator new (size, std::align_val_t{64})));
    block.bytes = size;
    block.used = bytes;
    return block.memory.get();
  }

  // A kernel has returned: one block as large as all it used serves the next call.
  void reset() {
    if (blocks.size() > 1) {
      std::size_t total = 0;
      for (const Block& block : blocks) total += block.bytes;
      blocks.clear();
      take(total);
    }
    for (Block& block : blocks) block.used = 0;
  }
};

ScratchArena& scratch_arena() {
  thread_local ScratchArena arena;
  return arena;
}

}  // namespace

void* KernelContext::scratch(std::size_t bytes) {
  scratch_used_ += bytes;
  return scratch_arena().take(bytes);
}

void KernelContext::release_scratch() {
  if (scratch_used_ == 0) return;
  scratch_arena().reset();
  scratch_used_ = 0;
}

KernelContext::~KernelContext() { release_scratch(); }

KernelFn find_kernel(const OpDef& op, DeviceBackend backend) {
  switch (backend) {
    case DeviceBackend::kCpu: return op.cpu_kernel;
    case DeviceBackend::kEmulatedGpu: return op.gpu ? op.cpu_kernel : nullptr;
    case DeviceBackend::kCuda: return nullptr;
  }
  return nullptr;
}

const OpDef* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto found =
      std::lower_bound(ops.begin(), ops.end(), name,
                       [](const OpDef* op, std::string_view wanted) { return op->name < wanted; });
  return found != ops.end() && (*found)->name == name ? *found : nullptr;
}

}  // namespace tandem
