/// @file
/// Max pooling that says where the maxima are, and its reverse, with PyTorch's names, layouts and
/// defaults. As torch.nn.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/convolution_modules.h"
#include "tandem/image_modules.h"
#include "tandem/module.h"
#include "tandem/tensor.h"

namespace tandem::nn {

/// Options of max_unpool1d(). As the arguments of torch.nn.MaxUnpool1d.
struct MaxUnpool1dArguments {
  std::optional<std::int64_t> stride{};  ///< default: the size of windows
  std::int64_t padding = 0;              ///< that of the pooling
};
/// Options of max_unpool2d(). As the arguments of torch.nn.MaxUnpool2d.
struct MaxUnpool2dArguments {
  OptionalPair stride{};  ///< default: the size of windows
  Pair padding = 0;       ///< that of the pooling
};
/// Options of max_unpool3d(). As the arguments of torch.nn.MaxUnpool3d.
struct MaxUnpool3dArguments {
  OptionalTriple stride{};  ///< default: the size of windows
  Triple padding = 0;       ///< that of the pooling
};

namespace functional {
/// @{
/// max_pool1d() and its like, and the position (int64) of each maximum among the elements of its
/// channel, in row-major order: the first of equal ones, and the first NaN. Reads each window's
/// elements, so that it is slower than pooling without positions. Throws DTypeError unless x is
/// floating-point, and as the poolings. As torch.nn.functional.max_pool1d with return_indices.
[[nodiscard]] ValuesAndIndices max_pool1d_with_indices(const Tensor& x, std::int64_t kernel_size,
                                                       const MaxPool1dArguments& options = {});
[[nodiscard]] ValuesAndIndices max_pool2d_with_indices(const Tensor& x, Pair kernel_size,
                                                       const MaxPool2dArguments& options = {});
[[nodiscard]] ValuesAndIndices max_pool3d_with_indices(const Tensor& x, Triple kernel_size,
                                                       const MaxPool3dArguments& options = {});
/// @}
/// @{
/// The elements of x at the positions `indices`, of its shape, of a larger result, and zeros
/// elsewhere. If positions are equal, the last element stays, and it alone has the gradient, which
/// PyTorch gives to all. A result of the size that a pooling had, (size - 1) * stride - 2 * padding
/// + kernel along each axis, or of `output_size`: a size per axis, also
/// with those of batch and channels, that differs by less than a stride.
/// Throws ShapeError for other shapes and InvalidArgumentError for other sizes and
/// for positions out of range. Runs on the host. As torch.nn.functional.max_unpool1d.
[[nodiscard]] Tensor max_unpool1d(const Tensor& x, const Tensor& indices, std::int64_t kernel_size,
                                  const MaxUnpool1dArguments& options = {},
                                  const std::vector<std::int64_t>& output_size = {});
[[nodiscard]] Tensor max_unpool2d(const Tensor& x, const Tensor& indices, Pair kernel_size,
                                  const MaxUnpool2dArguments& options = {},
                                  const std::vector<std::int64_t>& output_size = {});
[[nodiscard]] Tensor max_unpool3d(const Tensor& x, const Tensor& indices, Triple kernel_size,
                                  const MaxUnpool3dArguments& options = {},
                                  const std::vector<std::int64_t>& output_size = {});
/// @}
}  // namespace functional

/// The module of MaxUnpool1d to MaxUnpool3d.
class MaxUnpoolImpl : public Module {
 public:
  /// A function of the input, the indices and the size of the result, which may be empty.
  using Function = std::function<Tensor(const Tensor& x, const Tensor& indices,
                                        const std::vector<std::int64_t>& output_size)>;
  explicit MaxUnpoolImpl(Function function) : function_(std::move(function)) {}  ///< a module
  /// The function, for a result of the size that a pooling had.
  Tensor forward(const Tensor& x, const Tensor& indices) override {
    return function_(x, indices, {});
  }
  /// The same for a result of this size. A template, because clang warns of another overload of a
  /// virtual function.
  template <std::same_as<std::vector<std::int64_t>> Sizes = std::vector<std::int64_t>>
  Tensor forward(const Tensor& x, const Tensor& indices, const Sizes& output_size) const {
    return function_(x, indices, output_size);
  }

 private:
  Function function_;
};
/// functional::max_unpool1d() as a module. As torch.nn.MaxUnpool1d.
class MaxUnpool1d : public ModuleHolder<MaxUnpoolImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit MaxUnpool1d(std::int64_t kernel_size,
                       const MaxUnpool1dArguments& options = {});  ///< a module
};
/// functional::max_unpool2d() as a module. As torch.nn.MaxUnpool2d.
class MaxUnpool2d : public ModuleHolder<MaxUnpoolImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit MaxUnpool2d(Pair kernel_size, const MaxUnpool2dArguments& options = {});  ///< a module
};
/// functional::max_unpool3d() as a module. As torch.nn.MaxUnpool3d.
class MaxUnpool3d : public ModuleHolder<MaxUnpoolImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit MaxUnpool3d(Triple kernel_size, const MaxUnpool3dArguments& options = {});  ///< a module
};

}  // namespace tandem::nn
