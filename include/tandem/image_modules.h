/// @file
/// Modules for images [batch, channels, height, width] and batch normalization, with PyTorch's
/// names, layouts and defaults. As torch.nn. Tandem's own layers are channels-last
/// (tandem/layers.h) and need no transposes.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "tandem/module.h"
#include "tandem/nn.h"
#include "tandem/padding.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::nn {

/// Options of Conv2d in braces. As the arguments of torch.nn.Conv2d.
struct Conv2dArguments {
  Pair stride = 1;             ///< stride
  WindowPadding padding = 0;   ///< elements on each side, "valid", or "same" with a stride of 1
  Pair dilation = 1;           ///< spacing of the kernel's elements
  std::int64_t groups = 1;     ///< groups of channels that are convolved separately
  bool bias = true;            ///< whether to add a bias
  PaddingMode padding_mode{};  ///< which elements the padding has
};
/// The arguments of Conv2d, set one after another: `Conv2dOptions(1, 8, 3).stride(2)`. As
/// torch::nn::Conv2dOptions.
class Conv2dOptions {
 public:
  /// Numbers of channels, and the size of the kernel.
  Conv2dOptions(std::int64_t in_channels, std::int64_t out_channels, Pair kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  /// @{
  /// Sets the member of Conv2dArguments.
  Conv2dOptions& stride(Pair value) {
    arguments_.stride = value;
    return *this;
  }
  Conv2dOptions& padding(const WindowPadding& value) {
    arguments_.padding = value;
    return *this;
  }
  Conv2dOptions& dilation(Pair value) {
    arguments_.dilation = value;
    return *this;
  }
  Conv2dOptions& groups(std::int64_t value) {
    arguments_.groups = value;
    return *this;
  }
  Conv2dOptions& bias(bool value) {
    arguments_.bias = value;
    return *this;
  }
  Conv2dOptions& padding_mode(PaddingMode value) {
    arguments_.padding_mode = value;
    return *this;
  }
  /// @}
  std::int64_t in_channels() const { return in_channels_; }        ///< channels of inputs
  std::int64_t out_channels() const { return out_channels_; }      ///< channels of results
  Pair kernel_size() const { return kernel_size_; }                ///< height and width
  const Conv2dArguments& arguments() const { return arguments_; }  ///< the rest

 private:
  std::int64_t in_channels_, out_channels_;
  Pair kernel_size_;
  Conv2dArguments arguments_;
};
/// The module of Conv2d.
class Conv2dImpl : public Module {
 public:
  explicit Conv2dImpl(const Conv2dOptions& options);   ///< as Conv2d
  Tensor forward(const Tensor& input) const override;  ///< the convolution

  Variable weight;  ///< [out_channels, in_channels / groups, kernel height, kernel width]
  Variable bias;    ///< [out_channels]; undefined without a bias

 private:
  Conv2dOptions options_;
};
/// 2D convolution of images [batch, channels, height, width]. Weight and bias start uniform in +-1
/// / sqrt(in_channels / groups * kernel height * kernel width), as in PyTorch. Throws ShapeError
/// for images of another layout or number of channels. It transposes to and from channels-last:
/// layers::Conv2D is faster. As torch.nn.Conv2d.
class Conv2d : public ModuleHolder<Conv2dImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Conv2d() = default;  ///< an empty handle, to be assigned
  /// A handle to this module.
  explicit Conv2d(std::shared_ptr<Conv2dImpl> impl)
      : ModuleHolder(std::move(impl)), weight((*this)->weight), bias((*this)->bias) {}
  /// A module with these options.
  explicit Conv2d(const Conv2dOptions& options);
  /// A module with a kernel of this size.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel_size,
         const Conv2dArguments& arguments = {})
      : Conv2d(Conv2dOptions(in_channels, out_channels, kernel_size)
                   .stride(arguments.stride)
                   .padding(arguments.padding)
                   .dilation(arguments.dilation)
                   .groups(arguments.groups)
                   .bias(arguments.bias)
                   .padding_mode(arguments.padding_mode)) {}
  /// The same with stride and padding as arguments.
  template <std::integral Stride>
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel_size, Stride stride,
         const WindowPadding& padding = 0)
      : Conv2d(Conv2dOptions(in_channels, out_channels, kernel_size)
                   .stride(static_cast<std::int64_t>(stride))
                   .padding(padding)) {}

  Variable weight;  ///< that of the module
  Variable bias;    ///< that of the module
};

/// Options of max pooling in braces. As the arguments of torch.nn.MaxPool2d.
struct MaxPool2dArguments {
  OptionalPair stride{};   ///< default: the size of windows
  Pair padding = 0;        ///< on each side, at most half of a window
  Pair dilation = 1;       ///< spacing of a window's elements
  bool ceil_mode = false;  ///< whether a window may end beyond the padding
};
/// Options of average pooling in braces. As the arguments of torch.nn.AvgPool2d.
struct AvgPool2dArguments {
  OptionalPair stride{};          ///< default: the size of windows
  Pair padding = 0;               ///< zeros on each side, at most half of a window
  bool ceil_mode = false;         ///< whether a window may end beyond the padding
  bool count_include_pad = true;  ///< whether the zeros are part of the mean
  /// The divisor of sums; default: the number of elements. Beyond the padding are none.
  std::optional<std::int64_t> divisor_override{};
};
/// Functions of torch.nn.functional for images.
namespace functional {
/// @{
/// Pooling of images [batch, channels, height, width], or of one without the batch axis. The
/// padding of max_pool2d counts as minus infinity. Throws ShapeError for other ranks, and
/// InvalidArgumentError for other sizes. As the functions of torch.nn.functional.
[[nodiscard]] Tensor max_pool2d(const Tensor& x, Pair kernel_size,
                                const MaxPool2dArguments& options = {});
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, Pair kernel_size,
                                const AvgPool2dArguments& options = {});
/// @}
/// @{
/// The mean or maximum of `output_size` windows: window i of n of an axis with s elements has those
/// from i * s / n, rounded down, to (i + 1) * s / n, rounded up. Throws InvalidArgumentError for a
/// size below 1. As the functions of torch.nn.functional.
[[nodiscard]] Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size);
[[nodiscard]] Tensor adaptive_max_pool2d(const Tensor& x, Pair output_size);
/// @}
/// Convolution with a weight [out, in / groups, height, width]; `bias` may be undefined.
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Conv2dArguments& options = {});
}  // namespace functional
/// functional::max_pool2d() as a module. As torch.nn.MaxPool2d.
class MaxPool2d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// With windows of this size.
  explicit MaxPool2d(Pair kernel_size, const MaxPool2dArguments& options = {});
  /// The same with stride and padding as arguments.
  template <std::integral Stride>
  MaxPool2d(Pair kernel_size, Stride stride, Pair padding = 0)
      : MaxPool2d(kernel_size,
                  {.stride = Pair(static_cast<std::int64_t>(stride)), .padding = padding}) {}
};
/// functional::avg_pool2d() as a module. As torch.nn.AvgPool2d.
class AvgPool2d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// With windows of this size.
  explicit AvgPool2d(Pair kernel_size, const AvgPool2dArguments& options = {});
  /// The same with stride and padding as arguments.
  template <std::integral Stride>
  AvgPool2d(Pair kernel_size, Stride stride, Pair padding = 0)
      : AvgPool2d(kernel_size,
                  {.stride = Pair(static_cast<std::int64_t>(stride)), .padding = padding}) {}
};
/// functional::adaptive_avg_pool2d() as a module. As torch.nn.AdaptiveAvgPool2d.
class AdaptiveAvgPool2d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// With results of this size.
  explicit AdaptiveAvgPool2d(Pair output_size);
};
/// functional::adaptive_max_pool2d() as a module. As torch.nn.AdaptiveMaxPool2d.
class AdaptiveMaxPool2d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// With results of this size.
  explicit AdaptiveMaxPool2d(Pair output_size);
};

/// Options of BatchNorm1d and BatchNorm2d. As the arguments of torch.nn.BatchNorm2d.
struct BatchNormOptions {
  double eps = 1e-5;      ///< added to the variance
  double momentum = 0.1;  ///< part of the batch in the running moments
};
/// The module of BatchNorm1d and BatchNorm2d.
class BatchNormImpl : public Module {
 public:
  /// For inputs with `features` channels on axis 1 and one of the ranks.
  BatchNormImpl(const char* kind, std::int64_t features, int least_rank, int most_rank,
                const BatchNormOptions& options);
  Tensor forward(const Tensor& input) const override;  ///< normalizes over all axes but 1
  std::string kind() const override { return kind_; }

  Variable weight;        ///< [features]
  Variable bias;          ///< [features]
  Variable running_mean;  ///< [features]
  Variable running_var;   ///< [features]; follows the variance divided by n - 1

 private:
  const char* kind_;
  int least_rank_, most_rank_;
  BatchNormOptions options_;
};
/// Batch normalization of [batch, features] or [batch, features, positions]. In training mode it
/// normalizes with the moments of the batch, else with the running ones. As torch.nn.BatchNorm1d.
class BatchNorm1d : public ModuleHolder<BatchNormImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  BatchNorm1d() = default;  ///< an empty handle, to be assigned
  /// For this number of features.
  explicit BatchNorm1d(std::int64_t num_features, const BatchNormOptions& options = {});
};
/// Batch normalization of images [batch, channels, height, width]. As torch.nn.BatchNorm2d.
class BatchNorm2d : public ModuleHolder<BatchNormImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  BatchNorm2d() = default;  ///< an empty handle, to be assigned
  /// For this number of channels.
  explicit BatchNorm2d(std::int64_t num_features, const BatchNormOptions& options = {});
};
/// The module of Dropout2d.
class Dropout2dImpl : public Module {
 public:
  explicit Dropout2dImpl(double p) : p_(p) {}          ///< as Dropout2d
  Tensor forward(const Tensor& input) const override;  ///< drops channels in training mode

 private:
  double p_;
};
/// Zeroes whole channels of images [batch, channels, height, width] with probability `p` in
/// training and scales the others by 1 / (1 - p). As torch.nn.Dropout2d.
class Dropout2d : public ModuleHolder<Dropout2dImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  /// A module that drops this part of the channels.
  explicit Dropout2d(double p = 0.5);
};

}  // namespace tandem::nn
