#include "sync/gradient_views.h"

#include "tensor/tensor_impl.h"

namespace tandem {

Tensor view_of(Device& device, const std::shared_ptr<void>& memory, const Buffer& buffer,
               const Shape& shape) {
  RefPtr<TensorImpl> impl(new TensorImpl);
  impl->storage = Storage::adopt(device, memory, buffer.data, buffer.bytes());
  impl->shape = shape;
  impl->dtype = buffer.dtype;
  return Tensor(std::move(impl));
}

GradientViews::GradientViews(Reducer& reducer, Device& device, std::vector<Shape> shapes)
    : reducer_(reducer), device_(device), shapes_(std::move(shapes)), views_(shapes_.size()) {}

void GradientViews::begin_step() {
  reducer_.prepare();
  if (generation_ != reducer_.generation()) {
    generation_ = reducer_.generation();
    views_.assign(shapes_.size(), Tensor());
  }
  for (std::size_t i = views_.size(); i-- > 0;) {  // as buckets are made: last to first
    if (!views_[i].defined()) continue;
    const TensorImpl& impl = impl_of(views_[i]);
    if (impl.unique() && impl.storage->unique()) continue;
    reducer_.replace_memory(i);
    for (std::size_t member : reducer_.bucket_members(i)) views_[member] = {};
  }
}

Tensor GradientViews::writable_view(std::size_t index) {
  const TensorImpl& impl = impl_of(view(index));
  return impl.unique() && impl.storage->unique() ? views_[index] : Tensor();
}

const Tensor& GradientViews::view(std::size_t index) {
  Tensor& view = views_[index];
  if (!view.defined())
    view = view_of(device_, reducer_.memory(index), reducer_.result(index), shapes_[index]);
  return view;
}

}  // namespace tandem
