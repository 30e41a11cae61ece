/// @file
/// Convolutions of sequences, transposed and separable convolutions, and layers that change the
/// size of images and sequences. As tf.keras.layers. Images are [batch, height, width, channels],
/// sequences [batch, positions, channels].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tandem/layers.h"

namespace tandem::layers {

/// Options of Conv1D. As Keras.
struct Conv1DOptions {
  std::int64_t strides = 1;        ///< stride
  std::string padding = "valid";   ///< "valid", "same" or "causal": zeros before the sequence only
  std::int64_t dilation_rate = 1;  ///< spacing of the kernel's elements
  std::int64_t groups = 1;         ///< groups of channels that are convolved separately
  ActivationName activation{};     ///< the activation; default: linear
  bool use_bias = true;            ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Regularizer kernel_regularizer{};  ///< penalty of kernels; default: none
  Regularizer bias_regularizer{};    ///< penalty of biases; default: none
  Shape input_shape{};               ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};               ///< dtypes; default: the process's policy
  std::string name{};                ///< name in the model; default: by the type
};
/// Convolution of sequences. Variables: "kernel" [kernel_size, channels / groups, filters] (that of
/// torch.nn.Conv1d with its axes reversed) and "bias" [filters]. As tf.keras.layers.Conv1D.
class Conv1D : public tandem::Layer {
 public:
  Conv1D() = default;  ///< an undefined layer, to be assigned
  /// A layer with `filters` output channels.
  Conv1D(std::int64_t filters, std::int64_t kernel_size, const Conv1DOptions& options = {});
};

/// Options of Conv2DTranspose. As Keras.
struct Conv2DTransposeOptions {
  nn::Pair strides = 1;         ///< how many pixels of the result there are per pixel
  nn::WindowPadding padding{};  ///< "valid", "same" or numbers of rows and columns
  /// Rows and columns that are added to the size of the result, less than the strides. Default: a
  /// result of size * strides with "same", and of size * strides + max(kernel_size - strides, 0)
  /// with "valid"; 0 with numbers as padding, as torch.nn.ConvTranspose2d.
  nn::OptionalPair output_padding{};
  ActivationName activation{};  ///< the activation; default: linear
  bool use_bias = true;         ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Regularizer kernel_regularizer{};  ///< penalty of kernels; default: none
  Regularizer bias_regularizer{};    ///< penalty of biases; default: none
  Shape input_shape{};               ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};               ///< dtypes; default: the process's policy
  std::string name{};                ///< name in the model; default: by the type
};
/// Transposed 2D convolution: what the gradient of a convolution computes of its result, so that
/// the image grows by the strides. Without Keras's dilation_rate. Variables: "kernel" [height,
/// width, filters, channels] (that of torch.nn.ConvTranspose2d [channels, filters, height, width],
/// permuted by {2, 3, 1, 0}) and "bias" [filters]. As tf.keras.layers.Conv2DTranspose.
class Conv2DTranspose : public tandem::Layer {
 public:
  Conv2DTranspose() = default;  ///< an undefined layer, to be assigned
  /// A layer with `filters` output channels.
  Conv2DTranspose(std::int64_t filters, nn::Pair kernel_size,
                  const Conv2DTransposeOptions& options = {});
};

/// Options of SeparableConv2D. As Keras.
struct SeparableConv2DOptions {
  nn::Pair strides = 1;               ///< stride
  nn::WindowPadding padding{};        ///< "valid", "same" or numbers of rows and columns
  nn::Pair dilation_rate = 1;         ///< spacing of the kernel's elements
  std::int64_t depth_multiplier = 1;  ///< channels per input channel after the first convolution
  ActivationName activation{};        ///< the activation; default: linear
  bool use_bias = true;               ///< whether to add a bias
  Initializer depthwise_initializer = initializers::glorot_uniform();  ///< of the first kernel
  Initializer pointwise_initializer = initializers::glorot_uniform();  ///< of the second kernel
  Initializer bias_initializer = initializers::zeros();                ///< of biases
  Regularizer depthwise_regularizer{};  ///< penalty of the first kernel; default: none
  Regularizer pointwise_regularizer{};  ///< penalty of the second kernel; default: none
  Regularizer bias_regularizer{};       ///< penalty of biases; default: none
  Shape input_shape{};                  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                  ///< dtypes; default: the process's policy
  std::string name{};                   ///< name in the model; default: by the type
};
/// A convolution of each channel, and then one of 1 x 1 pixels. Variables: "depthwise_kernel"
/// [height, width, channels, multiplier], "pointwise_kernel" [1, 1, channels * multiplier, filters]
/// and "bias" [filters]. As tf.keras.layers.SeparableConv2D.
class SeparableConv2D : public tandem::Layer {
 public:
  SeparableConv2D() = default;  ///< an undefined layer, to be assigned
  /// A layer with `filters` output channels.
  SeparableConv2D(std::int64_t filters, nn::Pair kernel_size,
                  const SeparableConv2DOptions& options = {});
};

/// Options of MaxPooling1D and AveragePooling1D.
struct Pooling1DOptions {
  std::optional<std::int64_t> strides{};  ///< default: pool_size
  std::string padding = "valid";          ///< "valid" or "same"
  Shape input_shape{};                    ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                    ///< dtypes; default: the process's policy
  std::string name{};                     ///< name in the model; default: by the type
};
/// Max pooling of sequences. As tf.keras.layers.MaxPooling1D.
class MaxPooling1D : public tandem::Layer {
 public:
  /// A layer with windows of this size.
  explicit MaxPooling1D(std::int64_t pool_size = 2, const Pooling1DOptions& options = {});
};
/// Average pooling of sequences, without padding elements. As tf.keras.layers.AveragePooling1D.
class AveragePooling1D : public tandem::Layer {
 public:
  /// A layer with windows of this size.
  explicit AveragePooling1D(std::int64_t pool_size = 2, const Pooling1DOptions& options = {});
};

/// Options of UpSampling2D. As Keras, without bicubic and lanczos kernels.
struct UpSampling2DOptions {
  std::string interpolation = "nearest";  ///< "nearest" or "bilinear" (with half-pixel centres)
  Shape input_shape{};                    ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                    ///< dtypes; default: the process's policy
  std::string name{};                     ///< name in the model; default: by the type
};
/// Makes images `size` times as large. Height and width must be known in a trace. As
/// tf.keras.layers.UpSampling2D.
class UpSampling2D : public tandem::Layer {
 public:
  /// A layer.
  explicit UpSampling2D(nn::Pair size = 2, const UpSampling2DOptions& options = {});
};
/// Repeats each position `size` times. As tf.keras.layers.UpSampling1D.
class UpSampling1D : public tandem::Layer {
 public:
  /// A layer.
  explicit UpSampling1D(std::int64_t size = 2, const SimpleOptions& options = {});
};
/// Removes rows at the top and bottom and columns at the left and right. As
/// tf.keras.layers.Cropping2D.
class Cropping2D : public tandem::Layer {
 public:
  /// The same numbers on both sides.
  explicit Cropping2D(nn::Pair cropping = 0, const SimpleOptions& options = {});
  /// {top, bottom} and {left, right}.
  Cropping2D(std::pair<std::int64_t, std::int64_t> rows,
             std::pair<std::int64_t, std::int64_t> columns, const SimpleOptions& options = {});
};
/// Removes positions at the beginning and the end of sequences. As tf.keras.layers.Cropping1D.
class Cropping1D : public tandem::Layer {
 public:
  /// The same number at both ends.
  explicit Cropping1D(std::int64_t cropping = 1, const SimpleOptions& options = {});
  /// {beginning, end}.
  explicit Cropping1D(std::pair<std::int64_t, std::int64_t> cropping,
                      const SimpleOptions& options = {});
};
/// Pads height and width with zeros on both sides. As tf.keras.layers.ZeroPadding2D.
class ZeroPadding2D : public tandem::Layer {
 public:
  /// A layer that adds this many rows and columns on each side.
  explicit ZeroPadding2D(nn::Pair padding = 1, const SimpleOptions& options = {});
  /// {top, bottom} and {left, right}.
  ZeroPadding2D(std::pair<std::int64_t, std::int64_t> rows,
                std::pair<std::int64_t, std::int64_t> columns, const SimpleOptions& options = {});
};
/// Adds zeros at the beginning and the end of sequences. As tf.keras.layers.ZeroPadding1D.
class ZeroPadding1D : public tandem::Layer {
 public:
  /// The same number at both ends.
  explicit ZeroPadding1D(std::int64_t padding = 1, const SimpleOptions& options = {});
  /// {beginning, end}.
  explicit ZeroPadding1D(std::pair<std::int64_t, std::int64_t> padding,
                         const SimpleOptions& options = {});
};

}  // namespace tandem::layers
