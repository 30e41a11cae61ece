#include "c/array.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "c/handles.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"

namespace tandem::c {

HostArray::HostArray(const tandem_array* array, const char* what, std::string_view name,
                     bool channels_first)
    : label_(fmt::format("[{}] {}", what, name)) {
  if (!array) reject("expected an array, got null");
  array_ = *array;
  if (array_.dtype < TANDEM_FLOAT32 || array_.dtype > TANDEM_INT64)
    reject(fmt::format("expected dtype 1 to 4, got {}", array_.dtype));
  if (array_.rank < 0 || array_.rank > TANDEM_MAX_RANK)
    reject(fmt::format("expected rank 0 to {}, got {}", TANDEM_MAX_RANK, array_.rank));
  std::int64_t elements = 1;
  Dims sizes;
  for (int axis = 0; axis < array_.rank; ++axis) {
    const std::int64_t size = array_.dims[axis];
    if (size < 0 || (size > 0 && elements > kMaxElements / size))
      reject(fmt::format("expected at most 2^60 - 1 elements, got size {} in axis {}", size, axis));
    elements *= size;
    std::int64_t extent = 0;
    if (size > 1 && (__builtin_mul_overflow(array_.strides[axis], size - 1, &extent) ||
                     std::abs(extent / 8) > kMaxElements / 8))
      reject(fmt::format("expected strides within memory, got {} in axis {}", array_.strides[axis],
                         axis));
    sizes.push_back(size);
    strides_.push_back(array_.strides[axis]);
  }
  if (!array_.data && elements > 0) reject("expected memory, got null");
  if (std::ranges::all_of(strides_.span(), [](auto stride) { return stride == 0; })) {
    std::int64_t packed = 1;
    for (int axis = array_.rank - 1; axis >= 0; --axis) {
      strides_[axis] = packed;
      packed *= sizes[axis];
    }
  }
  if (channels_first && array_.rank > 2) {
    std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
    std::rotate(strides_.begin() + 1, strides_.begin() + 2, strides_.end());
  }
  shape_ = Shape(sizes);
}

void HostArray::reject(const std::string& message) const {
  throw InvalidArgumentError(label_ + ": " + message);
}

void HostArray::expect(const Shape& expected) const {
  bool equal = expected.rank() == shape_.rank();
  for (int axis = 0; equal && axis < shape_.rank(); ++axis)
    equal = expected.word(axis) < 0 || expected.word(axis) == shape_.word(axis);
  if (!equal)
    reject(fmt::format("expected shape {}, got {}", expected.to_string(), shape_.to_string()));
}

// Calls visit(position, offset, count, stride) for rows along the last axis: the number of the
// first element in row-major order, and where it is in memory, in elements.
template <class Visit>
void HostArray::each_row(const Visit& visit) const {
  const int last = shape_.rank() - 1;
  const std::int64_t elements = shape_.num_elements();
  if (elements == 0) return;
  if (last < 0) return visit(std::int64_t{0}, std::int64_t{0}, std::int64_t{1}, std::int64_t{1});
  const std::int64_t count = shape_.word(last);
  std::int64_t at[TANDEM_MAX_RANK] = {}, offset = 0;
  for (std::int64_t position = 0; position < elements; position += count) {
    visit(position, offset, count, strides_[last]);
    for (int axis = last - 1; axis >= 0; --axis) {
      offset += strides_[axis];
      if (++at[axis] < shape_.word(axis)) break;
      offset -= strides_[axis] * shape_.word(axis);
      at[axis] = 0;
    }
  }
}

template <class Visit>
void HostArray::with_data(const Visit& visit) const {
  switch (array_.dtype) {
    case TANDEM_FLOAT32: return visit(static_cast<float*>(array_.data));
    case TANDEM_FLOAT64: return visit(static_cast<double*>(array_.data));
    case TANDEM_INT32: return visit(static_cast<std::int32_t*>(array_.data));
    default: return visit(static_cast<std::int64_t*>(array_.data));
  }
}

Tensor HostArray::read(DType floating_dtype, const Affine& affine) const {
  const bool kept = !floating() && affine.scale.empty();
  const DType dtype = !kept ? floating_dtype : array_.dtype == TANDEM_INT32 ? int32 : int64;
  const Tensor tensor = make_tensor(DeviceManager::get().host(), shape_, dtype);
  const std::size_t features = affine.scale.size();
  with_data([&]<class From>(const From* from) {
    const auto fill = [&]<class To>(To* to) {
      each_row([&](std::int64_t position, std::int64_t offset, std::int64_t count, auto stride) {
        std::size_t feature = features ? static_cast<std::size_t>(position) % features : 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const From value = from[offset + i * stride];
          if (features) {
            to[position + i] = static_cast<To>(static_cast<double>(value) * affine.scale[feature] +
                                               affine.shift[feature]);
            if (++feature == features) feature = 0;
          } else {
            to[position + i] = static_cast<To>(value);
          }
        }
      });
    };
    std::byte* data = impl_of(tensor).data();
    switch (dtype) {
      case DType::kFloat64: return fill(reinterpret_cast<double*>(data));
      case DType::kInt32: return fill(reinterpret_cast<std::int32_t*>(data));
      case DType::kInt64: return fill(reinterpret_cast<std::int64_t*>(data));
      default: return fill(reinterpret_cast<float*>(data));
    }
  });
  return tensor;
}

std::vector<double> HostArray::values() const {
  std::vector<double> result(static_cast<std::size_t>(shape_.num_elements()));
  with_data([&](const auto* from) {
    each_row([&](std::int64_t position, std::int64_t offset, std::int64_t count, auto stride) {
      for (std::int64_t i = 0; i < count; ++i)
        result[static_cast<std::size_t>(position + i)] =
            static_cast<double>(from[offset + i * stride]);
    });
  });
  return result;
}

void HostArray::expect_writable() const {
  if (!floating()) reject("expected float32 or float64, got integers");
  expect_apart();
}

void HostArray::expect_apart() const {
  // Elements are distinct if each axis steps over all that the axes of smaller strides reach.
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (int axis = 0; axis < shape_.rank(); ++axis)
    if (shape_.word(axis) > 1) axes.emplace_back(std::abs(strides_[axis]), shape_.word(axis));
  std::ranges::sort(axes);
  std::int64_t reach = 0;
  for (const auto& [stride, size] : axes) {
    if (stride <= reach) reject("expected strides that keep elements apart, for writing");
    reach += stride * (size - 1);
  }
}

void HostArray::write(const Tensor& tensor, const Affine& affine) const {
  const std::size_t features = affine.scale.size();
  const Tensor values = tensor.cpu();
  with_data([&]<class To>(To* to) {
    const auto fill = [&](const auto* from) {
      each_row([&](std::int64_t position, std::int64_t offset, std::int64_t count, auto stride) {
        std::size_t feature = features ? static_cast<std::size_t>(position) % features : 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const auto value = from[position + i];
          if (features) {
            to[offset + i * stride] = static_cast<To>(
                static_cast<double>(value) * affine.scale[feature] + affine.shift[feature]);
            if (++feature == features) feature = 0;
          } else {
            to[offset + i * stride] = static_cast<To>(value);
          }
        }
      });
    };
    switch (values.dtype()) {
      case DType::kFloat64: return fill(values.data<double>());
      case DType::kInt64: return fill(values.data<std::int64_t>());
      case DType::kInt32: return fill(values.data<std::int32_t>());
      default: return fill(values.data<float>());
    }
  });
}

}  // namespace tandem::c

tandem_array tandem_view(const void* data, int32_t dtype, int32_t rank, const int64_t* dims) {
  tandem_array array = {const_cast<void*>(data), dtype, rank, {}, {}};
  if (!dims && rank > 0) array.rank = -1;
  for (int axis = 0; axis < array.rank && axis < TANDEM_MAX_RANK; ++axis)
    array.dims[axis] = dims[axis];
  return array;
}
