/// @file
/// Convolution and pooling of volumes [batch, depth, height, width, channels], as functions and
/// layers. As tf.nn and tf.keras.layers. They are made of those of images.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tandem/layers.h"
#include "tandem/nn.h"
#include "tandem/tensor.h"

namespace tandem {

namespace nn {

/// Three sizes, of depth, height and width.
struct Triple {
  std::int64_t depth = 1;   ///< size along the depth
  std::int64_t height = 1;  ///< size along the height
  std::int64_t width = 1;   ///< size along the width
  Triple() = default;
  /// The same size for all.
  Triple(std::int64_t all) : depth(all), height(all), width(all) {}  // NOLINT: one number
  /// Depth, height and width.
  Triple(std::int64_t d, std::int64_t h, std::int64_t w) : depth(d), height(h), width(w) {}
  friend bool operator==(const Triple&, const Triple&) = default;
};
/// Sizes that may not be given; converts from a number or a list of three.
class OptionalTriple : public std::optional<Triple> {
 public:
  using std::optional<Triple>::optional;
  OptionalTriple() = default;  ///< not given
  /// Depth, height and width.
  OptionalTriple(std::int64_t d, std::int64_t h, std::int64_t w)
      : std::optional<Triple>(std::in_place, d, h, w) {}
};

/// Padding of volumes: "valid", "same", or numbers of elements on both sides of each axis. As
/// WindowPadding.
class VolumePadding {
 public:
  VolumePadding() = default;  ///< no padding
  /// kValid or kSame. Throws InvalidArgumentError for kExplicit, which needs numbers.
  VolumePadding(Padding kind) : kind_(WindowPadding(kind).kind()) {}  // NOLINT: implicit
  /// @{
  /// "valid" or "same". Throws InvalidArgumentError for another name.
  VolumePadding(const char* name) : kind_(padding_from_name(name)) {}         // NOLINT: implicit
  VolumePadding(const std::string& name) : kind_(padding_from_name(name)) {}  // NOLINT: implicit
  /// @}
  /// The same number on all sides. Throws InvalidArgumentError for a negative one, as does the
  /// other.
  template <tandem::detail::Integer Size>
  VolumePadding(Size all) : VolumePadding(Triple(static_cast<std::int64_t>(all))) {}  // NOLINT
  /// Numbers per axis.
  VolumePadding(Triple numbers);  // NOLINT: implicit
  /// Depth, height and width.
  VolumePadding(std::int64_t d, std::int64_t h, std::int64_t w) : VolumePadding(Triple(d, h, w)) {}

  Padding kind() const { return kind_; }              ///< how volumes are padded
  const Triple& numbers() const { return numbers_; }  ///< the numbers of kExplicit
  friend bool operator==(const VolumePadding&, const VolumePadding&) = default;

 private:
  Padding kind_ = Padding::kValid;
  Triple numbers_{0};
};

/// Options of conv3d(). As the arguments of tf.nn.conv3d.
struct Conv3DOptions {
  Triple strides = 1;                           ///< strides
  VolumePadding padding{};                      ///< "valid", "same" or numbers
  Triple dilations = 1;                         ///< spacing of the kernel's elements
  std::int64_t groups = 1;                      ///< groups of channels
  Activation activation = Activation::kLinear;  ///< applied to the result
};
/// 3D convolution. x: [n, d, h, w, in], kernel: [kd, kh, kw, in / groups, out], bias: [out] or
/// undefined. One 2D convolution of kd times the channels, which are copied. Throws ShapeError for
/// other shapes and volumes smaller than the kernel. As tf.nn.conv3d.
[[nodiscard]] Tensor conv3d(const Tensor& x, const Tensor& kernel, const Tensor& bias = {},
                            const Conv3DOptions& options = {});

/// Options of pooling of volumes.
struct Pool3DOptions {
  Triple window = 2;         ///< size of the window
  OptionalTriple strides{};  ///< default: the window
  VolumePadding padding{};   ///< "valid", "same" or numbers below the window's
  bool ceil_mode = false;    ///< as Pool2DOptions::ceil_mode
};
/// @{
/// Max pooling, and average pooling without padding elements, of [n, d, h, w, c]. As
/// tf.nn.max_pool3d and avg_pool3d.
[[nodiscard]] Tensor max_pool3d(const Tensor& x, const Pool3DOptions& options = {});
[[nodiscard]] Tensor avg_pool3d(const Tensor& x, const Pool3DOptions& options = {});
/// @}

}  // namespace nn

namespace layers {

/// Options of Conv3D. As Keras.
struct Conv3DOptions {
  nn::Triple strides = 1;        ///< stride
  nn::VolumePadding padding{};   ///< "valid", "same" or numbers per axis
  nn::Triple dilation_rate = 1;  ///< spacing of the kernel's elements
  std::int64_t groups = 1;       ///< groups of channels that are convolved separately
  ActivationName activation{};   ///< the activation; default: linear
  bool use_bias = true;          ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Regularizer kernel_regularizer{};  ///< penalty of kernels; default: none
  Regularizer bias_regularizer{};    ///< penalty of biases; default: none
  Shape input_shape{};               ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};               ///< dtypes; default: the process's policy
  std::string name{};                ///< name in the model; default: by the type
};
/// 3D convolution. Variables: "kernel" [depth, height, width, channels / groups, filters] and
/// "bias" [filters]. As tf.keras.layers.Conv3D.
class Conv3D : public tandem::Layer {
 public:
  Conv3D() = default;  ///< an undefined layer, to be assigned
  /// A layer with `filters` output channels.
  Conv3D(std::int64_t filters, nn::Triple kernel_size, const Conv3DOptions& options = {});
};

/// Options of MaxPooling3D and AveragePooling3D. As Keras.
struct Pooling3DOptions {
  nn::OptionalTriple strides{};  ///< default: pool_size
  nn::VolumePadding padding{};   ///< "valid", "same" or numbers per axis
  Shape input_shape{};           ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};           ///< dtypes; default: the process's policy
  std::string name{};            ///< name in the model; default: by the type
};
/// Max pooling of volumes. As tf.keras.layers.MaxPooling3D.
class MaxPooling3D : public tandem::Layer {
 public:
  /// A layer with windows of this size.
  explicit MaxPooling3D(nn::Triple pool_size = 2, const Pooling3DOptions& options = {});
};
/// Average pooling of volumes, without padding elements. As tf.keras.layers.AveragePooling3D.
class AveragePooling3D : public tandem::Layer {
 public:
  /// A layer with windows of this size.
  explicit AveragePooling3D(nn::Triple pool_size = 2, const Pooling3DOptions& options = {});
};
/// The mean over depth, height and width. As tf.keras.layers.GlobalAveragePooling3D.
class GlobalAveragePooling3D : public tandem::Layer {
 public:
  /// A layer.
  explicit GlobalAveragePooling3D(const GlobalPooling2DOptions& options = {});
};
/// The maximum over depth, height and width. As tf.keras.layers.GlobalMaxPooling3D.
class GlobalMaxPooling3D : public tandem::Layer {
 public:
  /// A layer.
  explicit GlobalMaxPooling3D(const GlobalPooling2DOptions& options = {});
};

}  // namespace layers
}  // namespace tandem
