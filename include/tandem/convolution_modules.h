/// @file
/// Modules for sequences [batch, channels, positions] and volumes [batch, channels, depth, height,
/// width], transposed convolutions, padding, and modules that move elements between channels and
/// pixels; with PyTorch's names, layouts and defaults. As torch.nn. They transpose to and from
/// channels-last: the layers of tandem/convolution_layers.h and tandem/volumes.h are faster.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/image_modules.h"
#include "tandem/module.h"
#include "tandem/padding.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"
#include "tandem/volumes.h"

namespace tandem::nn {

/// Options of Conv1d. As the arguments of torch.nn.Conv1d.
struct Conv1dArguments {
  std::int64_t stride = 1;     ///< stride
  std::int64_t padding = 0;    ///< elements on each side
  std::int64_t dilation = 1;   ///< spacing of the kernel's elements
  std::int64_t groups = 1;     ///< groups of channels that are convolved separately
  bool bias = true;            ///< whether to add a bias
  PaddingMode padding_mode{};  ///< which elements the padding has
};
/// Options of Conv3d. As the arguments of torch.nn.Conv3d.
struct Conv3dArguments {
  Triple stride = 1;        ///< stride
  Triple padding = 0;       ///< zeros on each side
  Triple dilation = 1;      ///< spacing of the kernel's elements
  std::int64_t groups = 1;  ///< groups of channels that are convolved separately
  bool bias = true;         ///< whether to add a bias
};
/// Options of ConvTranspose1d. As the arguments of torch.nn.ConvTranspose1d.
struct ConvTranspose1dArguments {
  std::int64_t stride = 1;          ///< how many elements of the result there are per element
  std::int64_t padding = 0;         ///< that of the convolution which it reverses
  std::int64_t output_padding = 0;  ///< elements added to the size of the result
  std::int64_t groups = 1;          ///< groups of channels
  bool bias = true;                 ///< whether to add a bias
  std::int64_t dilation = 1;        ///< spacing of the kernel's elements
};
/// Options of ConvTranspose2d. As the arguments of torch.nn.ConvTranspose2d.
struct ConvTranspose2dArguments {
  Pair stride = 1;          ///< how many pixels of the result there are per pixel
  Pair padding = 0;         ///< that of the convolution which it reverses
  Pair output_padding = 0;  ///< rows and columns added to the size of the result
  std::int64_t groups = 1;  ///< groups of channels
  bool bias = true;         ///< whether to add a bias
  Pair dilation = 1;        ///< spacing of the kernel's elements
};
/// Options of ConvTranspose3d. As the arguments of torch.nn.ConvTranspose3d.
struct ConvTranspose3dArguments {
  Triple stride = 1;          ///< how many elements of the result there are per element
  Triple padding = 0;         ///< that of the convolution which it reverses
  Triple output_padding = 0;  ///< elements added to the sizes of the result
  std::int64_t groups = 1;    ///< groups of channels
  bool bias = true;           ///< whether to add a bias
  Triple dilation = 1;        ///< spacing of the kernel's elements
};
/// Options of pooling of sequences. As the arguments of torch.nn.MaxPool1d.
struct MaxPool1dArguments {
  std::optional<std::int64_t> stride{};  ///< default: the size of windows
  std::int64_t padding = 0;              ///< on each side, at most half of a window
  std::int64_t dilation = 1;             ///< spacing of a window's elements
  bool ceil_mode = false;                ///< whether a window may end beyond the padding
};
/// As the arguments of torch.nn.AvgPool1d.
struct AvgPool1dArguments {
  std::optional<std::int64_t> stride{};  ///< default: the size of windows
  std::int64_t padding = 0;              ///< zeros on each side, at most half of a window
  bool ceil_mode = false;                ///< whether a window may end beyond the padding
  bool count_include_pad = true;         ///< whether the zeros are part of the mean
};
/// Options of pooling of volumes. As the arguments of torch.nn.MaxPool3d.
struct MaxPool3dArguments {
  OptionalTriple stride{};  ///< default: the size of windows
  Triple padding = 0;       ///< on each side, at most half of a window
  Triple dilation = 1;      ///< spacing of a window's elements
  bool ceil_mode = false;   ///< whether a window may end beyond the padding
};
/// As the arguments of torch.nn.AvgPool3d.
struct AvgPool3dArguments {
  OptionalTriple stride{};                         ///< default: the size of windows
  Triple padding = 0;                              ///< zeros on each side
  bool ceil_mode = false;                          ///< whether a window may end beyond the padding
  bool count_include_pad = true;                   ///< whether the zeros are part of the mean
  std::optional<std::int64_t> divisor_override{};  ///< the divisor of sums
};

namespace functional {
/// @{
/// Convolution with a weight [out, in / groups, kernel...]; `bias` may be undefined. The options'
/// `bias` is not used. Throws ShapeError for other shapes. As torch.nn.functional.conv1d and
/// conv3d.
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Conv1dArguments& options = {});
[[nodiscard]] Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Conv3dArguments& options = {});
/// @}
/// @{
/// Transposed convolution with a weight [in, out / groups, kernel...], likewise: see
/// nn::conv2d_transpose(). The result has (size - 1) * stride + (kernel - 1) * dilation + 1 - 2 *
/// padding + output_padding elements along each axis. That of volumes is made of one of images with
/// the channels of all slices of the kernel. As torch.nn.functional.conv_transpose1d to 3d.
[[nodiscard]] Tensor conv_transpose1d(const Tensor& x, const Tensor& weight,
                                      const Tensor& bias = {},
                                      const ConvTranspose1dArguments& options = {});
[[nodiscard]] Tensor conv_transpose2d(const Tensor& x, const Tensor& weight,
                                      const Tensor& bias = {},
                                      const ConvTranspose2dArguments& options = {});
[[nodiscard]] Tensor conv_transpose3d(const Tensor& x, const Tensor& weight,
                                      const Tensor& bias = {},
                                      const ConvTranspose3dArguments& options = {});
/// @}
/// @{
/// As max_pool2d(), avg_pool2d() and the adaptive ones, for sequences and volumes.
[[nodiscard]] Tensor max_pool1d(const Tensor& x, std::int64_t kernel_size,
                                const MaxPool1dArguments& options = {});
[[nodiscard]] Tensor avg_pool1d(const Tensor& x, std::int64_t kernel_size,
                                const AvgPool1dArguments& options = {});
[[nodiscard]] Tensor max_pool3d(const Tensor& x, Triple kernel_size,
                                const MaxPool3dArguments& options = {});
[[nodiscard]] Tensor avg_pool3d(const Tensor& x, Triple kernel_size,
                                const AvgPool3dArguments& options = {});
[[nodiscard]] Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output_size);
[[nodiscard]] Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t output_size);
[[nodiscard]] Tensor adaptive_avg_pool3d(const Tensor& x, Triple output_size);
[[nodiscard]] Tensor adaptive_max_pool3d(const Tensor& x, Triple output_size);
/// @}
/// @{
/// [..., C * r^2, H, W] as [..., C, H * r, W * r], and the reverse: channel c * r^2 + i * r + j has
/// the pixels of row i and column j of each square. (TensorFlow's depth_to_space orders channels
/// otherwise.) Throws ShapeError unless r divides. As torch.nn.functional.pixel_shuffle.
[[nodiscard]] Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor);
[[nodiscard]] Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor);
/// @}
/// Channel i of group g, [batch, g, i, ...], becomes channel [batch, i, g, ...]. Throws ShapeError
/// unless the groups divide axis 1. As torch.nn.functional.channel_shuffle.
[[nodiscard]] Tensor channel_shuffle(const Tensor& x, std::int64_t groups);
}  // namespace functional

/// The module of the convolutions below.
class ConvolutionImpl : public Module {
 public:
  /// A function of the input, the weight and the bias, which may be undefined.
  using Function = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;
  /// `weight`: its shape. All sizes but the first are the fan-in, by which parameters start.
  ConvolutionImpl(std::string kind, const Shape& weight, std::int64_t out_channels, bool bias,
                  Function function);
  Tensor forward(const Tensor& input) const override;  ///< the convolution
  std::string kind() const override { return kind_; }

  Variable weight;  ///< [out, in / groups, kernel...]; transposed: [in, out / groups, kernel...]
  Variable bias;    ///< [out]; undefined without a bias

 private:
  std::string kind_;
  Function function_;
};
/// Convolution of sequences [batch, channels, positions], with the start of Conv2d's weights. As
/// torch.nn.Conv1d.
class Conv1d : public ModuleHolder<ConvolutionImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Conv1d() = default;  ///< an empty handle, to be assigned
  /// A module with a kernel of this size. Throws InvalidArgumentError for sizes that are not
  /// positive and groups that do not divide, as do those below.
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
         const Conv1dArguments& options = {});
};
/// Convolution of volumes [batch, channels, depth, height, width]. As torch.nn.Conv3d.
class Conv3d : public ModuleHolder<ConvolutionImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Conv3d() = default;  ///< an empty handle, to be assigned
  /// A module with a kernel of this size.
  Conv3d(std::int64_t in_channels, std::int64_t out_channels, Triple kernel_size,
         const Conv3dArguments& options = {});
};
/// Transposed convolution of sequences. As torch.nn.ConvTranspose1d.
class ConvTranspose1d : public ModuleHolder<ConvolutionImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  ConvTranspose1d() = default;  ///< an empty handle, to be assigned
  /// A module with a kernel of this size.
  ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                  const ConvTranspose1dArguments& options = {});
};
/// Transposed convolution of images. As torch.nn.ConvTranspose2d.
class ConvTranspose2d : public ModuleHolder<ConvolutionImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  ConvTranspose2d() = default;  ///< an empty handle, to be assigned
  /// A module with a kernel of this size.
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel_size,
                  const ConvTranspose2dArguments& options = {});
};
/// Transposed convolution of volumes. As torch.nn.ConvTranspose3d.
class ConvTranspose3d : public ModuleHolder<ConvolutionImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  ConvTranspose3d() = default;  ///< an empty handle, to be assigned
  /// A module with a kernel of this size.
  ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels, Triple kernel_size,
                  const ConvTranspose3dArguments& options = {});
};

/// functional::max_pool1d() as a module. As torch.nn.MaxPool1d.
class MaxPool1d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit MaxPool1d(std::int64_t kernel_size,
                     const MaxPool1dArguments& options = {});  ///< a module
};
/// functional::avg_pool1d() as a module. As torch.nn.AvgPool1d.
class AvgPool1d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit AvgPool1d(std::int64_t kernel_size,
                     const AvgPool1dArguments& options = {});  ///< a module
};
/// functional::max_pool3d() as a module. As torch.nn.MaxPool3d.
class MaxPool3d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit MaxPool3d(Triple kernel_size, const MaxPool3dArguments& options = {});  ///< a module
};
/// functional::avg_pool3d() as a module. As torch.nn.AvgPool3d.
class AvgPool3d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit AvgPool3d(Triple kernel_size, const AvgPool3dArguments& options = {});  ///< a module
};
/// functional::adaptive_avg_pool1d() as a module. As torch.nn.AdaptiveAvgPool1d.
class AdaptiveAvgPool1d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit AdaptiveAvgPool1d(std::int64_t output_size);  ///< a module
};
/// functional::adaptive_max_pool1d() as a module. As torch.nn.AdaptiveMaxPool1d.
class AdaptiveMaxPool1d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit AdaptiveMaxPool1d(std::int64_t output_size);  ///< a module
};
/// functional::adaptive_avg_pool3d() as a module. As torch.nn.AdaptiveAvgPool3d.
class AdaptiveAvgPool3d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit AdaptiveAvgPool3d(Triple output_size);  ///< a module
};

/// Sides of padding modules: one number for all, or {left, right, top, bottom, front, back}, of as
/// many axes as the module pads.
class PaddingSides {
 public:
  /// The same number on all sides.
  PaddingSides(std::int64_t all) : all_(all) {}  // NOLINT: one number stands for all
  /// The last axis first.
  PaddingSides(std::initializer_list<std::int64_t> sides) : sides_(sides) {}
  /// The numbers for this many axes. Throws InvalidArgumentError for another number of sides.
  std::vector<std::int64_t> of(const char* what, std::size_t axes) const;

 private:
  std::int64_t all_ = 0;
  std::vector<std::int64_t> sides_;
};
/// For Tandem's own code: pads the last `kAxes` axes, as functional::pad().
template <PaddingMode::Value kMode, std::size_t kAxes>
class PadModule : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder<FunctionModule>::ModuleHolder;
  /// With these sides; negative ones remove elements.
  explicit PadModule(const PaddingSides& padding) : PadModule(padding, 0.0) {}
  /// The same with the value of constant padding.
  template <std::floating_point Value>
  PadModule(const PaddingSides& padding, Value value)
      : ModuleHolder<FunctionModule>(std::make_shared<FunctionModule>(
            "pad", [sides = padding.of("pad", kAxes), value](const Tensor& x) {
              return functional::pad(x, sides, kMode, static_cast<double>(value));
            })) {}
};
using ReflectionPad1d = PadModule<PaddingMode::kReflect, 1>;     ///< as torch.nn.ReflectionPad1d
using ReflectionPad2d = PadModule<PaddingMode::kReflect, 2>;     ///< as torch.nn.ReflectionPad2d
using ReflectionPad3d = PadModule<PaddingMode::kReflect, 3>;     ///< as torch.nn.ReflectionPad3d
using ReplicationPad1d = PadModule<PaddingMode::kReplicate, 1>;  ///< as torch.nn.ReplicationPad1d
using ReplicationPad2d = PadModule<PaddingMode::kReplicate, 2>;  ///< as torch.nn.ReplicationPad2d
using ReplicationPad3d = PadModule<PaddingMode::kReplicate, 3>;  ///< as torch.nn.ReplicationPad3d
using CircularPad1d = PadModule<PaddingMode::kCircular, 1>;      ///< as torch.nn.CircularPad1d
using CircularPad2d = PadModule<PaddingMode::kCircular, 2>;      ///< as torch.nn.CircularPad2d
using CircularPad3d = PadModule<PaddingMode::kCircular, 3>;      ///< as torch.nn.CircularPad3d
using ConstantPad1d = PadModule<PaddingMode::kConstant, 1>;      ///< as torch.nn.ConstantPad1d
using ConstantPad2d = PadModule<PaddingMode::kConstant, 2>;      ///< as torch.nn.ConstantPad2d
using ConstantPad3d = PadModule<PaddingMode::kConstant, 3>;      ///< as torch.nn.ConstantPad3d
using ZeroPad1d = ConstantPad1d;                                 ///< as torch.nn.ZeroPad1d
using ZeroPad2d = ConstantPad2d;                                 ///< as torch.nn.ZeroPad2d
using ZeroPad3d = ConstantPad3d;                                 ///< as torch.nn.ZeroPad3d

/// functional::pixel_shuffle() as a module. As torch.nn.PixelShuffle.
class PixelShuffle : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit PixelShuffle(std::int64_t upscale_factor);  ///< a module
};
/// functional::pixel_unshuffle() as a module. As torch.nn.PixelUnshuffle.
class PixelUnshuffle : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit PixelUnshuffle(std::int64_t downscale_factor);  ///< a module
};
/// functional::channel_shuffle() as a module. As torch.nn.ChannelShuffle.
class ChannelShuffle : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit ChannelShuffle(std::int64_t groups);  ///< a module
};
/// Replaces the axis `dim` by axes of these sizes, of which one may be -1. As torch.nn.Unflatten.
class Unflatten : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Unflatten(std::int64_t dim, const std::vector<std::int64_t>& unflattened_size);  ///< a module
};

}  // namespace tandem::nn
