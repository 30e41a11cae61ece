#include "tandem/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "device/device_manager.h"
#include "op/context.h"
#include "runtime/autocast.h"
#include "tandem/autodiff.h"
#include "tensor/tensor_impl.h"

namespace tandem::detail {
namespace {

// Where the elements of a shape are in memory of the program, in elements from its begin.
class Strided {
 public:
  // Throws as from_blob() does. `elements`: of the memory, if known.
  Strided(std::string_view op, const Shape& shape, const std::vector<std::int64_t>& strides,
          std::optional<std::int64_t> elements)
      : op_(op), shape_(shape), strides_(rows(shape)) {
    packed_ = strides.empty() || std::ranges::equal(strides, strides_);
    if (!strides.empty() && strides.size() != strides_.size())
      fail<InvalidArgumentError>("[{}] expected {} strides for shape {}, got {}", op, shape.rank(),
                                 shape.to_string(), strides.size());
    if (packed_) {
      if (elements && *elements != shape.num_elements())
        fail<ShapeError>("[{}] expected memory of {} elements for shape {}, got {}", op,
                         shape.num_elements(), shape.to_string(), *elements);
      return;
    }
    strides_ = strides;
    check_reach(elements);
  }

  bool packed() const { return packed_; }

  // Throws InvalidArgumentError if two elements may coincide: each axis has to step over all that
  // the axes of smaller strides reach.
  void check_apart() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> axes;
    for (int axis = 0; axis < shape_.rank(); ++axis)
      if (shape_[axis] > 1) axes.emplace_back(std::abs(stride(axis)), shape_[axis]);
    std::ranges::sort(axes);
    std::int64_t reach = 0;
    for (const auto& [stride, size] : axes) {
      if (stride <= reach)
        fail<InvalidArgumentError>(
            "[{}] expected strides that keep the elements of shape {} apart, got a stride of {}",
            op_, shape_.to_string(), stride);
      reach += stride * (size - 1);
    }
  }

  // Calls visit(number, place) for each element, in row-major order.
  template <class Visit>
  void each(const Visit& visit) const {
    const std::int64_t count = shape_.num_elements();
    std::vector<std::int64_t> at(strides_.size());
    std::int64_t place = 0;
    for (std::int64_t number = 0; number < count; ++number) {
      visit(number, place);
      for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
        std::int64_t& index = at[static_cast<std::size_t>(axis)];
        place += stride(axis);
        if (++index < shape_[axis]) break;
        place -= stride(axis) * index;
        index = 0;
      }
    }
  }

 private:
  static std::vector<std::int64_t> rows(const Shape& shape) {
    std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()));
    std::int64_t next = 1;
    for (std::size_t axis = strides.size(); axis-- > 0; next *= shape.word(static_cast<int>(axis)))
      strides[axis] = next;
    return strides;
  }
  std::int64_t stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }

  void check_reach(std::optional<std::int64_t> elements) const {
    if (shape_.num_elements() == 0) return;
    std::int64_t first = 0, last = 0;
    for (int axis = 0; axis < shape_.rank(); ++axis) {
      std::int64_t reach = 0;
      std::int64_t& end = stride(axis) < 0 ? first : last;
      if (__builtin_mul_overflow(stride(axis), shape_.word(axis) - 1, &reach) ||
          __builtin_add_overflow(end, reach, &end))
        fail<ShapeError>("[{}] expected strides inside of memory, got {} for axis {} of shape {}",
                         op_, stride(axis), axis, shape_.to_string());
    }
    if (elements && (first < 0 || last >= *elements))
      fail<ShapeError>(
          "[{}] expected strides inside of {} elements of memory, got elements {} to {} for shape "
          "{}",
          op_, *elements, first, last, shape_.to_string());
  }

  const std::string_view op_;
  const Shape& shape_;
  std::vector<std::int64_t> strides_;
  bool packed_ = false;
};

void check_memory(std::string_view op, const void* memory, DType dtype, const Shape& shape) {
  if (!shape.fully_defined() || shape.too_large())
    fail<ShapeError>("[{}] expected a shape of known size, got {}", op, shape.to_string());
  if (!memory && shape.num_elements() > 0)
    fail<InvalidArgumentError>("[{}] expected memory for shape {}, got null", op,
                               shape.to_string());
  if (reinterpret_cast<std::uintptr_t>(memory) % size_of(dtype) != 0)
    fail<InvalidArgumentError>("[{}] expected an address that is a multiple of {} for {}, got {}",
                               op, size_of(dtype), name_of(dtype), memory);
}

}  // namespace

Tensor from_blob(const void* memory, std::optional<std::int64_t> elements, DType dtype,
                 const Shape& shape, const FromBlobOptions& options) {
  check_memory("from_blob", memory, dtype, shape);
  const Strided places("from_blob", shape, options.strides, elements);
  DeviceImpl& host = DeviceManager::get().host();
  std::shared_ptr<void> owner(const_cast<void*>(memory), [deleter = options.deleter](void* own) {
    if (deleter) deleter(own);
  });
  if (places.packed() && memory) {
    RefPtr<TensorImpl> impl(new TensorImpl);
    impl->shape = shape;
    impl->dtype = dtype;
    impl->storage = Storage::adopt_constant(
        host, std::move(owner), static_cast<std::size_t>(shape.num_elements()) * size_of(dtype));
    return Tensor(std::move(impl));
  }
  Tensor tensor = make_tensor(host, shape, dtype, "from_blob");
  const std::size_t bytes = size_of(dtype);
  std::byte* const to = impl_of(tensor).data();
  places.each([&](std::int64_t number, std::int64_t place) {
    std::memcpy(to + static_cast<std::size_t>(number) * bytes,
                static_cast<const std::byte*>(memory) + place * static_cast<std::int64_t>(bytes),
                bytes);
  });
  return tensor;
}

void copy_to(const Tensor& tensor, void* memory, std::int64_t elements, DType dtype,
             const CopyToOptions& options) {
  check_memory("copy_to", memory, dtype, tensor.shape());
  const Strided places("copy_to", tensor.shape(), options.strides, elements);
  if (!places.packed()) places.check_apart();
  const Scoped at_once(context.graph, nullptr);
  const AutocastScope as_asked(std::nullopt);
  const NoGradScope no_grad;
  const Tensor values = tensor.dtype() == dtype ? tensor : cast_tensor(tensor, dtype);
  if (places.packed()) return to_host(values, memory);
  const Tensor here = copy_to_device(values, DeviceManager::get().host());
  const std::byte* const from = impl_of(here).data();
  const std::size_t bytes = size_of(dtype);
  places.each([&](std::int64_t number, std::int64_t place) {
    std::memcpy(static_cast<std::byte*>(memory) + place * static_cast<std::int64_t>(bytes),
                from + static_cast<std::size_t>(number) * bytes, bytes);
  });
}

}  // namespace tandem::detail
