#include "ops/onednn/packing.h"

#include <utility>

#include "device/device_manager.h"
#include "op/kept_copies.h"
#include "tensor/tensor_impl.h"

namespace tandem::onednn {

Packing::Packing(const memory::desc& plain, const memory::desc& packed)
    : plain_(plain),
      packed_(packed),
      reorder_(packed == plain ? nullptr : make_reorder(plain, packed)) {}

const void* Packing::pack(KernelContext& context, const void* operand) const {
  if (!reorder_) return operand;
  void* copy = context.scratch(packed_.get_size());
  reorder_->run(context, {operand, copy});
  return copy;
}

const void* Packing::pack(KernelContext& context, const TensorView& operand) {
  if (!reorder_) return operand.data;
  // The plan of a thread is used by several contexts.
  if (operand.version == 0 || !context.kept) return pack(context, operand.data);
  const bool same = data_ == operand.data && version_ == operand.version;
  if (same && kept_) [[likely]]
    return impl_of(*kept_).data();
  data_ = operand.data;
  version_ = operand.version;
  kept_.reset();
  // A program that trains reads a variable once between two writes.
  if (!same && operand.version != TensorView::kConstant) return pack(context, operand.data);
  try {
    return kept_copy(context, operand);
  } catch (const ResourceExhaustedError&) {
    return pack(context, operand.data);
  }
}

const void* Packing::kept_copy(KernelContext& context, const TensorView& operand) {
  kept_ = KeptCopies<std::pair<memory::desc, memory::desc>>::get().find(
      operand, {plain_, packed_}, [&] {
        const Scoped tag(memory_tag, MemoryTag::kWeights);
        DeviceImpl& device = context.workspace ? *context.workspace : DeviceManager::get().host();
        const Tensor copy = make_tensor(
            device, Shape{static_cast<std::int64_t>(packed_.get_size())}, uint8, context.op->name);
        reorder_->run(context, {operand.data, impl_of(copy).data()});
        return copy;
      });
  return impl_of(*kept_).data();
}

}  // namespace tandem::onednn
