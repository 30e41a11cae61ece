/// @file
/// Normalization per example, dropout of channels, and small layers. As tf.keras.layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/layers.h"

namespace tandem::layers {

/// Options of GroupNormalization. As Keras.
struct GroupNormalizationOptions {
  double epsilon = 1e-3;  ///< added to the variance; PyTorch's is 1e-5
  bool center = true;     ///< whether to add beta
  bool scale = true;      ///< whether to multiply by gamma
  Shape input_shape{};    ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};    ///< dtypes; default: the process's policy
  std::string name{};     ///< name in the model; default: by the type
};
/// Normalizes [batch, ..., channels] per example and group of neighbouring channels, over all
/// positions. `groups` -1: each channel is one (instance normalization). Variables "gamma" and
/// "beta" [channels], PyTorch's weight and bias. Throws InvalidArgumentError for a number of
/// channels that the groups do not divide. As tf.keras.layers.GroupNormalization over the last axis
/// (Wu and He 2018).
class GroupNormalization : public tandem::Layer {
 public:
  /// A layer.
  explicit GroupNormalization(std::int64_t groups = 32,
                              const GroupNormalizationOptions& options = {});
};

/// Options of RMSNormalization. As Keras.
struct RMSNormalizationOptions {
  double epsilon = 1e-6;  ///< added to the mean of squares
  Shape input_shape{};    ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};    ///< dtypes; default: the process's policy
  std::string name{};     ///< name in the model; default: by the type
};
/// x / sqrt(mean of squares + epsilon) * scale over the last axis; the root is computed in float32
/// or float64. Variable "scale" [channels], PyTorch's weight. As tf.keras.layers.RMSNormalization
/// over the last axis (Zhang and Sennrich 2019).
class RMSNormalization : public tandem::Layer {
 public:
  /// A layer.
  explicit RMSNormalization(const RMSNormalizationOptions& options = {});
};
/// Divides by the Euclidean norm over the last axis, which counts as at least 1e-12. As
/// tf.keras.layers.UnitNormalization over the last axis.
class UnitNormalization : public tandem::Layer {
 public:
  /// A layer.
  explicit UnitNormalization(const SimpleOptions& options = {});
};

/// Zeroes whole channels of sequences [batch, positions, channels] with probability `rate` in
/// training and scales the others by 1 / (1 - rate). As tf.keras.layers.SpatialDropout1D.
class SpatialDropout1D : public tandem::Layer {
 public:
  SpatialDropout1D() = default;  ///< an undefined layer, to be assigned
  /// A layer that zeroes this part of the channels.
  explicit SpatialDropout1D(double rate, const SimpleOptions& options = {});
};
/// The same for images [batch, height, width, channels]. As tf.keras.layers.SpatialDropout2D.
class SpatialDropout2D : public tandem::Layer {
 public:
  SpatialDropout2D() = default;  ///< an undefined layer, to be assigned
  /// A layer that zeroes this part of the channels.
  explicit SpatialDropout2D(double rate, const SimpleOptions& options = {});
};

/// Options of PReLU. As Keras.
struct PReLUOptions {
  Initializer alpha_initializer = initializers::zeros();  ///< of slopes; PyTorch's is 0.25
  Regularizer alpha_regularizer{};                        ///< penalty of slopes; default: none
  /// Axes (1 is the first after the batch) that share their slopes; default: none.
  std::vector<std::int64_t> shared_axes{};
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// x if x > 0, else alpha * x, where "alpha" is a variable of the example's shape, with size 1
/// along shared axes. PyTorch's has one slope per channel: share the axes before the last one. As
/// tf.keras.layers.PReLU.
class PReLU : public tandem::Layer {
 public:
  /// A layer.
  explicit PReLU(const PReLUOptions& options = {});
};
/// Returns its input. As tf.keras.layers.Identity.
class Identity : public tandem::Layer {
 public:
  /// A layer.
  explicit Identity(const SimpleOptions& options = {});
};
/// Permutes the axes of examples, of which 1 is the first: Permute({2, 1}) swaps two. As
/// tf.keras.layers.Permute.
class Permute : public tandem::Layer {
 public:
  Permute() = default;  ///< an undefined layer, to be assigned
  /// A layer. Throws InvalidArgumentError unless each axis occurs once.
  explicit Permute(const std::vector<std::int64_t>& dims, const SimpleOptions& options = {});
};
/// Repeats vectors [batch, features] `n` times: [batch, n, features]. As
/// tf.keras.layers.RepeatVector.
class RepeatVector : public tandem::Layer {
 public:
  RepeatVector() = default;  ///< an undefined layer, to be assigned
  /// A layer.
  explicit RepeatVector(std::int64_t n, const SimpleOptions& options = {});
};

}  // namespace tandem::layers
