/// @file
/// Layers that change images at random in training, and layers of image sizes. As
/// tf.keras.layers and torchvision.transforms.
/// @code
/// td::Sequential model({td::layers::RandomFlip("horizontal"), td::layers::RandomRotation(0.1),
///                       td::layers::Rescaling(1.0 / 255), ...});
/// // Or on the processor, while the model trains:
/// td::layers::RandomFlip flip("horizontal");
/// auto batches = images.map([flip](td::Tensor x) { return flip(x, true); }, td::data::AUTOTUNE)
///                    .batch(128);
/// @endcode
///
/// All take one image [height, width, channels] or several [batch, height, width, channels] of any
/// dtype, and give floating-point ones of the layer's dtype policy. Each image of a batch has
/// random numbers of its own, unless a layer says otherwise. Outside of training the random layers
/// return the images as they are. In Dataset::map() the random numbers depend on the position of
/// the element, the epoch and the shard, so that a run that continues has those that it would have
/// had. Heights, widths and numbers of channels must be known, except for RandomFlip and the layers
/// of colours; layers throw InvalidArgumentError for other inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/data.h"
#include "tandem/layers.h"
#include "tandem/tensor.h"

namespace tandem::layers {

/// The range of a random factor: {-0.2, 0.3}, or 0.2 for {-0.2, 0.2}.
class FactorRange {
 public:
  /// From -|factor| to |factor|.
  FactorRange(double factor)  // NOLINT: implicit
      : lower_(factor < 0 ? factor : -factor), upper_(-lower_), symmetric_(true) {}
  /// From `lower` to `upper`.
  FactorRange(double lower, double upper) : lower_(lower), upper_(upper) {}
  double lower() const { return lower_; }        ///< the lower limit
  double upper() const { return upper_; }        ///< the upper limit
  bool symmetric() const { return symmetric_; }  ///< whether it was made of one number

 private:
  double lower_, upper_;
  bool symmetric_ = false;
};

/// Options of RandomFlip. As Keras.
struct RandomFlipOptions {
  std::optional<std::uint64_t> seed{};  ///< as random::Options::seed
  DTypePolicy dtype{};                  ///< dtypes; default: the process's policy
  std::string name{};                   ///< name in the model; default: by the type
};
/// Reverses the columns ("horizontal"), the rows ("vertical") or each of both of an image, with
/// probability 1/2. As tf.keras.layers.RandomFlip.
class RandomFlip : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError for another mode.
  explicit RandomFlip(const std::string& mode = "horizontal_and_vertical",
                      const RandomFlipOptions& options = {});
};

/// Options of RandomRotation and RandomTranslation. As Keras.
struct RandomTransformOptions {
  /// The pixels beyond the edges: "reflect" (d c b a | a b c d | d c b a), "wrap", "nearest", or
  /// "constant": fill_value.
  std::string fill_mode = "reflect";
  std::string interpolation = "bilinear";  ///< or "nearest"
  std::optional<std::uint64_t> seed{};     ///< as random::Options::seed
  double fill_value = 0.0;                 ///< of pixels with the mode "constant"
  DTypePolicy dtype{};                     ///< dtypes; default: the process's policy
  std::string name{};                      ///< name in the model; default: by the type
};
/// Rotates an image about its centre by a random angle, a fraction of a full turn; positive ones
/// are counter-clockwise. As tf.keras.layers.RandomRotation.
class RandomRotation : public tandem::Layer {
 public:
  RandomRotation() = default;  ///< an undefined layer, to be assigned
  /// A layer with angles of this range.
  explicit RandomRotation(FactorRange factor, const RandomTransformOptions& options = {});
};
/// Options of RandomZoom. As Keras.
struct RandomZoomOptions {
  std::optional<FactorRange> width_factor{};  ///< that of widths; default: that of the height
  std::string fill_mode = "reflect";          ///< as RandomTransformOptions::fill_mode
  std::string interpolation = "bilinear";     ///< or "nearest"
  std::optional<std::uint64_t> seed{};        ///< as random::Options::seed
  double fill_value = 0.0;                    ///< of pixels with the mode "constant"
  DTypePolicy dtype{};                        ///< dtypes; default: the process's policy
  std::string name{};                         ///< name in the model; default: by the type
};
/// Enlarges the visible part of an image by a random factor 1 + f of its height and width: images
/// shrink for positive f. As tf.keras.layers.RandomZoom.
class RandomZoom : public tandem::Layer {
 public:
  RandomZoom() = default;  ///< an undefined layer, to be assigned
  /// A layer with f of this range. Throws InvalidArgumentError for factors beyond [-1, 1].
  explicit RandomZoom(FactorRange height_factor, const RandomZoomOptions& options = {});
};
/// Moves an image down and to the right by random fractions of its height and width. As
/// tf.keras.layers.RandomTranslation.
class RandomTranslation : public tandem::Layer {
 public:
  RandomTranslation() = default;  ///< an undefined layer, to be assigned
  /// A layer with fractions of these ranges. Throws InvalidArgumentError for those beyond [-1, 1].
  RandomTranslation(FactorRange height_factor, FactorRange width_factor,
                    const RandomTransformOptions& options = {});
};

/// Options of RandomCrop, and of the layers of sizes. As Keras.
struct CropOptions {
  std::optional<std::uint64_t> seed{};  ///< as random::Options::seed
  DTypePolicy dtype{};                  ///< dtypes; default: the process's policy
  std::string name{};                   ///< name in the model; default: by the type
};
/// A part of this size at a random place, the same for all images of a batch. Outside of training,
/// and
/// for smaller images, the largest middle part of the same aspect ratio, resized. As
/// tf.keras.layers.RandomCrop.
class RandomCrop : public tandem::Layer {
 public:
  RandomCrop() = default;  ///< an undefined layer, to be assigned
  /// A layer for images of this size. Throws InvalidArgumentError for sizes below 1.
  RandomCrop(std::int64_t height, std::int64_t width, const CropOptions& options = {});
};
/// The middle part of this size; for smaller images as RandomCrop. In training, too. As
/// tf.keras.layers.CenterCrop.
class CenterCrop : public tandem::Layer {
 public:
  CenterCrop() = default;  ///< an undefined layer, to be assigned
  /// A layer for images of this size. Throws InvalidArgumentError for sizes below 1.
  CenterCrop(std::int64_t height, std::int64_t width, const CropOptions& options = {});
};
/// Options of RandomResizedCrop. As torchvision.
struct RandomResizedCropOptions {
  std::pair<double, double> scale = {0.08, 1.0};             ///< parts of the image's area
  std::pair<double, double> ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< widths divided by heights
  std::string interpolation = "bilinear";                    ///< or "nearest"
  std::optional<std::uint64_t> seed{};                       ///< as random::Options::seed
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// A part of random area, aspect ratio and place, resized to height x width without smoothing; of
/// ten tries the first that fits, else the middle (Szegedy et al. 2014). Outside of training as
/// RandomCrop. As torchvision.transforms.RandomResizedCrop with antialias = False.
class RandomResizedCrop : public tandem::Layer {
 public:
  RandomResizedCrop() = default;  ///< an undefined layer, to be assigned
  /// A layer for images of this size. Throws InvalidArgumentError for sizes below 1 and ranges that
  /// are not positive.
  RandomResizedCrop(std::int64_t height, std::int64_t width,
                    const RandomResizedCropOptions& options = {});
};
/// Options of Resizing. As Keras.
struct ResizingOptions {
  std::string interpolation = "bilinear";  ///< or "nearest"
  bool crop_to_aspect_ratio = false;       ///< resizes the largest middle part of that aspect ratio
  bool pad_to_aspect_ratio = false;        ///< adds pixels around the image to that aspect ratio
  double fill_value = 0.0;                 ///< of these pixels
  DTypePolicy dtype{};                     ///< dtypes; default: the process's policy
  std::string name{};                      ///< name in the model; default: by the type
};
/// The images with this height and width, as image::resize(). In training, too. As
/// tf.keras.layers.Resizing.
class Resizing : public tandem::Layer {
 public:
  Resizing() = default;  ///< an undefined layer, to be assigned
  /// A layer for images of this size. Throws InvalidArgumentError for sizes below 1.
  Resizing(std::int64_t height, std::int64_t width, const ResizingOptions& options = {});
};

/// Options of RandomBrightness and RandomContrast. As Keras.
struct RandomColorOptions {
  std::pair<double, double> value_range = {0.0, 255.0};  ///< of pixels; results are limited to it
  std::optional<std::uint64_t> seed{};                   ///< as random::Options::seed
  DTypePolicy dtype{};                                   ///< dtypes; default: the process's policy
  std::string name{};  ///< name in the model; default: by the type
};
/// Adds a random fraction of the value range to an image. As tf.keras.layers.RandomBrightness.
class RandomBrightness : public tandem::Layer {
 public:
  RandomBrightness() = default;  ///< an undefined layer, to be assigned
  /// A layer with fractions of this range. Throws InvalidArgumentError for those beyond [-1, 1].
  explicit RandomBrightness(FactorRange factor, const RandomColorOptions& options = {});
};
/// (x - mean) * f + mean, with the mean of each channel and a random f from 1 - lower to 1 + upper,
/// where one number is both. As tf.keras.layers.RandomContrast is documented; Keras 3.15 takes 0 as
/// the lower one then.
class RandomContrast : public tandem::Layer {
 public:
  RandomContrast() = default;  ///< an undefined layer, to be assigned
  /// A layer. Throws InvalidArgumentError for negative limits and a lower one above 1.
  explicit RandomContrast(FactorRange factor, const RandomColorOptions& options = {});
};
/// Options of ColorJitter. As torchvision.
struct ColorJitterOptions {
  double brightness = 0.0;  ///< pixels times a factor of [max(0, 1 - brightness), 1 + brightness]
  double contrast = 0.0;    ///< the same for the difference to the mean of the grey image
  double saturation = 0.0;  ///< the same for the difference to the grey image
  double hue = 0.0;         ///< turns of the colour circle, of [-hue, hue]; at most 0.5
  std::pair<double, double> value_range = {0.0, 255.0};  ///< of pixels
  std::optional<std::uint64_t> seed{};                   ///< as random::Options::seed
  DTypePolicy dtype{};                                   ///< dtypes; default: the process's policy
  std::string name{};  ///< name in the model; default: by the type
};
/// Changes brightness, contrast, saturation and hue of images of three channels by random factors,
/// in this order; torchvision's is random. As torchvision.transforms.ColorJitter.
class ColorJitter : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError for negative strengths.
  explicit ColorJitter(const ColorJitterOptions& options = {});
};
/// Options of RandomErasing. As Keras.
struct RandomErasingOptions {
  /// A rectangle's height and width are the roots of two random numbers of this range, as fractions
  /// of the image's.
  std::pair<double, double> scale = {0.02, 0.33};
  std::optional<double>
      fill_value{};  ///< of its pixels; default: normal noise times the upper value
  std::pair<double, double> value_range = {0.0, 255.0};  ///< to which new pixels are limited
  std::optional<std::uint64_t> seed{};                   ///< as random::Options::seed
  DTypePolicy dtype{};                                   ///< dtypes; default: the process's policy
  std::string name{};  ///< name in the model; default: by the type
};
/// Replaces a random rectangle of an image, with a probability between `lower` and `upper` that is
/// random, too; one number is the upper limit, from 0 on (Zhong et al. 2017). As
/// tf.keras.layers.RandomErasing.
class RandomErasing : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError for numbers beyond [0, 1].
  explicit RandomErasing(FactorRange factor = 1.0, const RandomErasingOptions& options = {});
};

/// Options of MixUp and CutMix.
struct MixOptions {
  std::optional<std::uint64_t> seed{};  ///< as random::Options::seed
};
/// Mixes each image of a batch with a random other one, and their labels alike: w * a + (1 - w) *
/// b, where w has the distribution Beta(alpha, alpha) (Zhang et al. 2017). For Dataset::map() of
/// batches {images, labels}, and for training loops. Labels are vectors of classes, as one_hot()
/// makes them: integers are a DTypeError. As tf.keras.layers.MixUp.
/// @code
/// batches.map([](td::Tensor x, td::Tensor y) { return std::pair{x, td::one_hot(y, 10)}; })
///     .map(td::layers::MixUp(0.2))
/// @endcode
class MixUp {
 public:
  /// Throws InvalidArgumentError for an alpha that is not positive.
  explicit MixUp(double alpha = 0.2, const MixOptions& options = {});
  /// The mixed batch. Throws InvalidArgumentError for another number of components.
  data::Example operator()(const data::Example& batch) const;
  /// The mixed images and labels.
  std::pair<Tensor, Tensor> operator()(const Tensor& images, const Tensor& labels) const;

 private:
  std::vector<float> quantiles_;
  MixOptions options_;
};
/// Replaces a rectangle of each image by that of a random other one. The rectangle has a fraction 1
/// - w of the area, and labels are mixed with the part that remains: w * a + (1 - w) * b (Yun et
/// al. 2019). As tf.keras.layers.CutMix with the factor (alpha, alpha); else as MixUp.
class CutMix {
 public:
  /// Throws InvalidArgumentError for an alpha that is not positive.
  explicit CutMix(double alpha = 1.0, const MixOptions& options = {});
  /// The mixed batch. Throws InvalidArgumentError for another number of components.
  data::Example operator()(const data::Example& batch) const;
  /// The mixed images and labels.
  std::pair<Tensor, Tensor> operator()(const Tensor& images, const Tensor& labels) const;

 private:
  std::vector<float> quantiles_;
  MixOptions options_;
};

}  // namespace tandem::layers
