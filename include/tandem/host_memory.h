/// @file
/// Tensors of memory that the program owns, and back: the arrays of a solver, a std::vector, a
/// memory-mapped file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/tensor.h"

namespace tandem {

/// Options of from_blob().
struct FromBlobOptions {
  /// Distance between neighbours along each axis, in elements; may be negative or 0. Default: rows
  /// without gaps, the last axis fastest. Other strides make a copy at once.
  std::vector<std::int64_t> strides{};
  /// Called with the memory's address when no tensor refers to it any more, on any thread; after a
  /// copy at once. Must not throw. Default: nothing.
  std::function<void(void*)> deleter{};
};

/// Options of copy_to().
struct CopyToOptions {
  /// As FromBlobOptions::strides, but no two elements may coincide.
  std::vector<std::int64_t> strides{};
};

namespace detail {
// Memory that a std::span refers to, and that lasts after the expression.
template <class R>
concept LastingMemory =
    (std::is_lvalue_reference_v<R> ||
     std::ranges::enable_borrowed_range<std::remove_cv_t<R>>)&&requires(R& memory) {
  std::span(memory);
};

Tensor from_blob(const void* memory, std::optional<std::int64_t> elements, DType dtype,
                 const Shape& shape, const FromBlobOptions& options);
void copy_to(const Tensor& tensor, void* memory, std::int64_t elements, DType dtype,
             const CopyToOptions& options);
}  // namespace detail

/// @{
/// Returns a tensor over `memory` (a std::span, std::vector, array), on the host's device, with the
/// dtype of its elements. Without strides it is not copied: the tensor and its views refer to it.
/// Nothing ever writes into it: operations that may reuse the memory of their input, variables and
/// in-place collectives take other memory. It must stay as it is until no tensor refers to it;
/// recorded operations refer to what their gradient reads. As torch::from_blob.
///
/// Throws ShapeError if the memory has another number of elements than the shape, or the strides
/// reach outside of it; InvalidArgumentError for null with a size, an address that is not aligned
/// for the dtype, or another number of strides than axes.
template <detail::LastingMemory R>
[[nodiscard]] Tensor from_blob(R&& memory, const Shape& shape,
                               const FromBlobOptions& options = {}) {
  const std::span elements(memory);
  return detail::from_blob(elements.data(), static_cast<std::int64_t>(elements.size()),
                           dtype_of<typename decltype(elements)::value_type>, shape, options);
}
/// The same for memory of unknown size at `memory`, where element {0, ..., 0} is.
template <class T>
requires(!std::is_void_v<T>) [[nodiscard]] Tensor
    from_blob(T* memory, const Shape& shape, const FromBlobOptions& options = {}) {
  return detail::from_blob(memory, std::nullopt, dtype_of<std::remove_const_t<T>>, shape, options);
}
/// The same for elements of a dtype that is known at run time.
[[nodiscard]] inline Tensor from_blob(const void* memory, const Shape& shape, DType dtype = float32,
                                      const FromBlobOptions& options = {}) {
  return detail::from_blob(memory, std::nullopt, dtype, shape, options);
}
/// @}

/// Copies the elements of a tensor to memory of the program (a std::span, std::vector, array),
/// converted to its element type as cast() does. Waits for the tensor. Elements of the memory that
/// the strides pass over stay as they are.
///
/// Throws ShapeError if the memory has another number of elements than the tensor, or the strides
/// reach outside of it; InvalidArgumentError if elements coincide or the number of strides differs
/// from the tensor's rank; FailedPreconditionError for symbolic tensors.
template <class R>
requires detail::LastingMemory<R&>
void copy_to(const Tensor& tensor, R&& memory, const CopyToOptions& options = {}) {
  const std::span elements(memory);
  detail::copy_to(tensor, elements.data(), static_cast<std::int64_t>(elements.size()),
                  dtype_of<typename decltype(elements)::value_type>, options);
}

}  // namespace tandem
