#include "runtime/gradient_buffer.h"

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/mutex.h"

namespace tandem {

namespace {

struct BufferTable {
  std::mutex mutex;
  const HeldAtFork held_at_fork{mutex};
  std::unordered_map<const Leaf*, std::function<Tensor()>> by_leaf;
  std::atomic<bool> any{false};
};
BufferTable& table() {
  static auto& instance = *new BufferTable;
  return instance;
}

}  // namespace

void set_gradient_buffer(const Leaf& leaf, std::function<Tensor()> buffer) {
  BufferTable& all = table();
  const std::scoped_lock lock(all.mutex);
  if (buffer)
    all.by_leaf[&leaf] = std::move(buffer);
  else
    all.by_leaf.erase(&leaf);
  all.any.store(!all.by_leaf.empty(), std::memory_order_relaxed);
}

bool has_gradient_buffer(const Leaf& leaf) {
  BufferTable& all = table();
  if (!all.any.load(std::memory_order_relaxed)) return false;
  const std::scoped_lock lock(all.mutex);
  return all.by_leaf.count(&leaf) > 0;
}

Tensor gradient_buffer_of(const Leaf& leaf) {
  BufferTable& all = table();
  if (!all.any.load(std::memory_order_relaxed)) return {};
  std::function<Tensor()> buffer;
  {
    const std::scoped_lock lock(all.mutex);
    const auto found = all.by_leaf.find(&leaf);
    if (found == all.by_leaf.end()) return {};
    buffer = found->second;
  }
  return buffer();
}

namespace {

// Undefined if input `input` is no leaf, or has no buffer.
Tensor buffer_for(const GradContext& gradient, int input) {
  if (!context.gradient_buffers) return {};
  const auto* node = static_cast<const GradNode*>(gradient.edge(input).node.get());
  if (!node || node->op) return {};
  return (*context.gradient_buffers)(*static_cast<const Leaf*>(node));
}

}  // namespace

GradientBufferScope::GradientBufferScope(const GradContext& gradient, int input)
    : buffer_(buffer_for(gradient, input)),
      open_(context.open_buffer, buffer_.defined() ? &buffer_ : nullptr) {}

Tensor take_gradient_buffer(const TensorType& spec, const DeviceImpl& device) {
  const TensorImpl& impl = impl_of(*context.open_buffer);
  if (impl.dtype != spec.dtype || !(impl.shape == spec.shape) || &impl.device() != &device)
    return {};
  return std::move(*std::exchange(context.open_buffer, nullptr));
}

}  // namespace tandem
