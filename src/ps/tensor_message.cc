#include "ps/tensor_message.h"

#include <memory>

#include "core/status.h"
#include "device/device_manager.h"
#include "function/serialize.h"

namespace tandem::ps {
namespace {

Shape shape_of(const tandem::proto::TensorSpec& spec, const std::string& what) {
  if (spec.sizes_size() > kMaxRank)
    fail<DataLossError>("[{}] a tensor of {} axes; at most {} are supported", what,
                        spec.sizes_size(), kMaxRank);
  for (const std::int64_t size : spec.sizes())
    if (size < 0) fail<DataLossError>("[{}] a tensor of size {}", what, size);
  const Shape shape(std::span<const std::int64_t>(spec.sizes().data(),
                                                  static_cast<std::size_t>(spec.sizes_size())));
  if (shape.too_large()) fail<DataLossError>("[{}] a tensor that is too large", what);
  return shape;
}

DType dtype_of(const tandem::proto::TensorSpec& spec, const std::string& what) {
  if (spec.dtype() > static_cast<std::uint32_t>(last_value(DType())))
    fail<DataLossError>("[{}] unknown dtype {}", what, spec.dtype());
  return static_cast<DType>(spec.dtype());
}

}  // namespace

tandem::proto::TensorSpec attach(const Tensor& tensor, rpc::Message& message) {
  const Tensor on_host = copy_to_device(tensor.detach(), DeviceManager::get().host());
  const TensorImpl& impl = impl_of(on_host);
  tandem::proto::TensorSpec spec;
  write_spec(impl, spec);
  message.attachments.push_back(
      {.owner = std::make_shared<const Tensor>(on_host), .bytes = {impl.data(), impl.bytes()}});
  return spec;
}

Tensor AttachedTensors::next(const tandem::proto::TensorSpec& spec) {
  const Shape shape = shape_of(spec, what_);
  const DType dtype = dtype_of(spec, what_);
  const std::size_t bytes = static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
  if (taken_ == attachments_.size())
    fail<DataLossError>("[{}] expected more than {} attachments", what_, taken_);
  const rpc::Attachment& attachment = attachments_[taken_++];
  if (attachment.bytes.size() != bytes)
    fail<DataLossError>("[{}] expected {} bytes for a tensor of shape {} and dtype {}, got {}",
                        what_, bytes, shape.to_string(), name_of(dtype), attachment.bytes.size());
  // The memory belongs to this message alone.
  RefPtr<TensorImpl> impl = make_ref<TensorImpl>();
  impl->dtype = dtype;
  impl->shape = shape;
  impl->storage =
      Storage::adopt(DeviceManager::get().host(), std::const_pointer_cast<void>(attachment.owner),
                     const_cast<std::byte*>(attachment.bytes.data()), bytes);
  return Tensor(std::move(impl));
}

void AttachedTensors::end() const {
  if (taken_ != attachments_.size())
    fail<DataLossError>("[{}] expected {} attachments, got {}", what_, taken_, attachments_.size());
}

void fail_parsing(const std::string& what, std::size_t bytes) {
  fail<DataLossError>("[{}] the header of {} bytes is truncated or corrupt", what, bytes);
}

}  // namespace tandem::ps
