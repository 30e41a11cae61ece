#include "tandem/tensor.h"

#include <cstring>

#include "core/status.h"
#include "device/copy.h"
#include "device/device_manager.h"
#include "device/memory_report.h"
#include "tensor/element_types.h"
#include "tensor/symbolic_advice.h"
#include "tensor/tensor_impl.h"

namespace tandem {

namespace detail {

void undefined_tensor() {
  throw FailedPreconditionError(
      "[Tensor] an undefined tensor was used; assign a value to it first");
}

namespace {
constinit thread_local std::string_view advice;
}  // namespace

SymbolicAdvice::SymbolicAdvice(std::string_view text) : previous_(advice) { advice = text; }
SymbolicAdvice::~SymbolicAdvice() { advice = previous_; }

void symbolic_tensor() {
  std::string message =
      "[Tensor] the elements of a symbolic tensor were asked for: it stands for what a graph will "
      "compute and has none before the graph runs (Session::run, or the call of the function that "
      "is being traced). Inside a traced function use operations instead of host code.";
  if (!advice.empty()) (message += ' ') += advice;
  throw FailedPreconditionError(message);
}

}  // namespace detail

RefPtr<Storage> Storage::allocate(DeviceImpl& device, const Shape& shape, DType dtype,
                                  std::string_view op) {
  if (shape.too_large()) [[unlikely]]
    fail<ShapeError>("[{}] expected a tensor of at most {} elements, got shape {}",
                     op.empty() ? "Tensor" : op, kMaxElements, shape.to_string());
  const std::size_t bytes = static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
  void* memory = device.allocator().allocate(bytes);
  if (!memory && bytes > 0) [[unlikely]]
    throw_out_of_memory(device, {.what = fmt::format("tensor with shape {} and dtype {}",
                                                     shape.to_string(), name_of(dtype)),
                                 .op = op,
                                 .bytes = bytes});
  return RefPtr<Storage>(new Storage(device, static_cast<std::byte*>(memory), bytes));
}

RefPtr<Storage> Storage::adopt(DeviceImpl& device, std::shared_ptr<void> owner, void* data,
                               std::size_t bytes) {
  return RefPtr<Storage>(
      new Storage(device, static_cast<std::byte*>(data), bytes, std::move(owner)));
}

RefPtr<Storage> Storage::adopt_constant(DeviceImpl& device, std::shared_ptr<void> owner,
                                        std::size_t bytes) {
  void* const data = owner.get();
  RefPtr<Storage> storage = adopt(device, std::move(owner), data, bytes);
  storage->constant_ = true;
  return storage;
}

Storage::~Storage() {
  if (data_ && !owner_) device_->allocator().deallocate(data_);
}

Tensor make_tensor(DeviceImpl& device, const Shape& shape, DType dtype, std::string_view op) {
  RefPtr<TensorImpl> impl(new TensorImpl);
  impl->storage = Storage::allocate(device, shape, dtype, op);
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor make_view(const Tensor& base, const Shape& shape, std::int64_t offset) {
  const TensorImpl& from = impl_of(base);
  RefPtr<TensorImpl> impl(new TensorImpl);
  impl->storage = from.storage;
  impl->symbol = from.symbol;
  impl->shape = shape;
  impl->dtype = from.dtype;
  impl->offset = from.offset + offset;
  return Tensor(std::move(impl));
}

Tensor make_alias(const Tensor& base) { return make_view(base, impl_of(base).shape); }

Tensor from_host(DeviceImpl& device, const Shape& shape, DType dtype, const void* host) {
  const MemoryTag tag = memory_tag;
  const Scoped scope(memory_tag, tag == MemoryTag::kActivations ? MemoryTag::kOther : tag);
  Tensor tensor = make_tensor(device, shape, dtype);
  const TensorImpl& impl = impl_of(tensor);
  if (impl.bytes() > 0) host_to_device(device, impl.data(), host, impl.bytes());
  return tensor;
}

void to_host(const Tensor& tensor, void* host) {
  const TensorImpl& impl = impl_of(tensor);
  if (impl.bytes() == 0) return;
  read_from(impl.device(), host, impl.data(), impl.bytes(), impl.device().stream().record());
}

Tensor copy_to_device(const Tensor& tensor, DeviceImpl& device) {
  const TensorImpl& from = impl_of(tensor);
  if (from.symbol || &from.device() == &device) return tensor;
  Tensor result = make_tensor(device, from.shape, from.dtype);
  copy_into(result, tensor);
  return result;
}

void copy_into(const Tensor& to, const Tensor& from) {
  const TensorImpl& target = impl_of(to);
  const TensorImpl& source = impl_of(from);
  TANDEM_ASSERT(target.bytes() == source.bytes());
  if (target.bytes() == 0) return;
  copy_between(target.device(), target.data(), source.device(), source.data(), source.bytes());
}

const Shape& Tensor::shape() const& { return impl_of(*this).shape; }
DType Tensor::dtype() const { return impl_of(*this).dtype; }
const std::string& Tensor::device() const& { return impl_of(*this).device().full_name(); }

namespace {

template <class T>
void require_dtype(const Tensor& tensor, const char* what) {
  if (tensor.dtype() != dtype_of<T>)
    fail<DTypeError>("[{}] the tensor's dtype is {}, asked for as {}; cast it first", what,
                     name_of(tensor.dtype()), name_of(dtype_of<T>));
}

}  // namespace

template <class Element>
std::vector<Element> Tensor::to_vector() const {
  require_dtype<Element>(*this, "to_vector");
  if (impl_of(*this).symbol && !shape().fully_defined()) detail::symbolic_tensor();
  const auto count = static_cast<std::size_t>(shape().num_elements());
  if constexpr (std::is_same_v<Element, bool>) {
    std::vector<std::uint8_t> bytes(count);
    to_host(*this, bytes.data());
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    std::vector<Element> values(count);
    to_host(*this, values.data());
    return values;
  }
}

template <class Element>
const Element* Tensor::data() const& {
  require_dtype<Element>(*this, "data");
  const TensorImpl& impl = impl_of(*this);
  if (!impl.device().host_accessible())
    fail<InvalidArgumentError>(
        "[data] the tensor is on {}, whose memory the host cannot reach; copy it with cpu() first",
        device());
  return reinterpret_cast<const Element*>(impl.data());
}

template <class Element>
Element* Tensor::data_ptr() & {
  static_cast<void>(data<Element>());  // checks dtype and memory
  TensorImpl& impl = impl_of(*this);
  if (reusable(impl)) return reinterpret_cast<Element*>(impl.data());
  Tensor copy = make_tensor(impl.device(), impl.shape, impl.dtype);
  copy_into(copy, *this);
  impl_of(copy).grad = impl.grad;
  *this = std::move(copy);
  return reinterpret_cast<Element*>(impl_of(*this).data());
}

void Tensor::check_accessor(int rank) const {
  if (rank != shape().rank())
    fail<ShapeError>("[accessor] expected a tensor of {} axes, got shape {}", rank,
                     shape().to_string());
}

Tensor::RowIterator Tensor::begin() const { return {*this, 0}; }

Tensor::RowIterator Tensor::end() const {
  if (rank() == 0 || shape().word(0) < 0)
    fail<ShapeError>("[begin] expected a first axis of known size to iterate over, got shape {}",
                     shape().to_string());
  return {*this, shape().word(0)};
}

#define TANDEM_INSTANTIATE(T)                           \
  template std::vector<T> Tensor::to_vector<T>() const; \
  template const T* Tensor::data<T>() const&;           \
  template T* Tensor::data_ptr<T>()&;
TANDEM_EACH_ELEMENT_TYPE(TANDEM_INSTANTIATE)
#undef TANDEM_INSTANTIATE

}  // namespace tandem
