#include "runtime/gradient_buffer.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "core/thread_object.h"

namespace tandem {

namespace {

struct OpenBuffer {
  Tensor tensor;
};
Tensor& open_buffer() { return thread_object<OpenBuffer>().tensor; }

struct BufferTable {
  std::mutex mutex;
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

GradientBufferScope::GradientBufferScope(const GradContext& gradient, int input) {
  if (!context.gradient_buffers) return;
  const auto* node = static_cast<const GradNode*>(gradient.edge(input).node.get());
  if (!node || node->op) return;
  open_buffer() = (*context.gradient_buffers)(*static_cast<const Leaf*>(node));
  context.gradient_buffer_open = open_buffer().defined();
}

GradientBufferScope::~GradientBufferScope() {
  if (!context.gradient_buffer_open) return;
  context.gradient_buffer_open = false;
  open_buffer() = {};
}

Tensor take_gradient_buffer(const TensorType& spec, const DeviceImpl& device) {
  const TensorImpl& impl = impl_of(open_buffer());
  if (impl.dtype != spec.dtype || !(impl.shape == spec.shape) || &impl.device() != &device)
    return {};
  context.gradient_buffer_open = false;
  return std::move(open_buffer());
}

}  // namespace tandem
