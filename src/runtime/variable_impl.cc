#include "runtime/variable_impl.h"

#include "core/status.h"
#include "runtime/replica_context.h"

namespace tandem {
namespace {

thread_local VariableCreator* current_creator = nullptr;

Tensor clone_to(const Tensor& value, Device& device, MemoryTag tag) {
  MemoryTagScope scope(tag);
  Tensor copy = make_tensor(device, value.shape(), value.dtype());
  copy_into(copy, value);
  return copy;
}

void keep_leaf(const VariableImpl::Copy& copy, const Tensor& value) {
  if (copy.leaf) impl_of(value).grad = {copy.leaf, 0};
}

}  // namespace

VariableImpl::VariableImpl(const Tensor& initial_value, std::span<Device* const> devices,
                           VariableOptions options, MemoryTag tag)
    : options_(std::move(options)), spec_(impl_of(initial_value)) {
  if (options_.trainable && !is_floating(spec_.dtype)) options_.trainable = false;
  for (Device* device : devices) {
    Copy& copy = copies_.emplace_back();
    copy.tag = tag;
    copy.value = clone_to(initial_value, *device, tag);
    if (options_.trainable) {
      copy.leaf = make_ref<Leaf>(*device);
      keep_leaf(copy, copy.value);
    }
  }
}

VariableImpl::Copy& VariableImpl::local() {
  if (copies_.size() == 1) return copies_.front();
  const ReplicaContext* context = ReplicaContext::current();
  return copies_[context ? static_cast<std::size_t>(context->replica_id()) : 0];
}

const Tensor& VariableImpl::writable(Copy& copy) {
  const TensorImpl& impl = impl_of(copy.value);
  if (!impl.unique() || !impl.storage->unique()) {
    Tensor fresh = clone_to(copy.value, impl.device(), copy.tag);
    keep_leaf(copy, fresh);
    copy.value = std::move(fresh);
  }
  return copy.value;
}

void VariableImpl::store(Copy& copy, const Tensor& value) {
  const TensorImpl& impl = impl_of(copy.value);
  if (impl.unique() && impl.storage->unique()) {
    copy_into(copy.value, value);
    return;
  }
  Tensor fresh = clone_to(value, impl.device(), copy.tag);
  keep_leaf(copy, fresh);
  copy.value = std::move(fresh);
}

VariableCreator* VariableCreator::current() { return current_creator; }

VariableCreatorScope::VariableCreatorScope(VariableCreator* creator) : previous_(current_creator) {
  current_creator = creator;
}

VariableCreatorScope::~VariableCreatorScope() { current_creator = previous_; }

}  // namespace tandem
