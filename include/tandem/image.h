/// @file
/// Functions on images, [height, width, channels] or [batch, height, width, channels]. As tf.image.
/// They are made of operations: they have gradients, run in traced functions and maps of datasets,
/// and take floating-point images, unless they say otherwise (DTypeError). All throw ShapeError for
/// another rank.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/shape.h"
#include "tandem/tensor.h"

/// Functions on images. As tf.image.
namespace tandem::image {

/// @{
/// Reversed along the width or the height; any dtype. As tf.image.flip_left_right and flip_up_down.
[[nodiscard]] Tensor flip_left_right(const Tensor& images);
[[nodiscard]] Tensor flip_up_down(const Tensor& images);
/// @}
/// @{
/// Each image reversed with probability 1/2, by random numbers of its own. As
/// tf.image.random_flip_left_right and random_flip_up_down.
[[nodiscard]] Tensor random_flip_left_right(const Tensor& images);
[[nodiscard]] Tensor random_flip_up_down(const Tensor& images);
/// @}
/// The middle part of these fractions of the height and the width, in (0, 1]; any dtype. As
/// tf.image.central_crop.
[[nodiscard]] Tensor central_crop(const Tensor& images, double central_fraction);
/// A part of this size at a random place; any dtype. `size` has an entry per axis, at most the size
/// of the axis, which must be known where it is another. As tf.image.random_crop.
[[nodiscard]] Tensor random_crop(const Tensor& value, const Sizes& size);
/// Weighted sums of the three channels, with one channel. As tf.image.rgb_to_grayscale.
[[nodiscard]] Tensor rgb_to_grayscale(const Tensor& images);
/// The one channel three times; any dtype. As tf.image.grayscale_to_rgb.
[[nodiscard]] Tensor grayscale_to_rgb(const Tensor& images);
/// The images plus `delta`. As tf.image.adjust_brightness.
[[nodiscard]] Tensor adjust_brightness(const Tensor& images, double delta);
/// (x - mean) * factor + mean, with the mean of each channel of each image. As
/// tf.image.adjust_contrast.
[[nodiscard]] Tensor adjust_contrast(const Tensor& images, double contrast_factor);
/// (x - mean) / max(stddev, 1 / sqrt(n)), of the n elements of each image. As
/// tf.image.per_image_standardization.
[[nodiscard]] Tensor per_image_standardization(const Tensor& images);
/// Options of resize().
struct ResizeOptions {
  /// "bilinear", or "nearest", which takes any dtype and keeps it.
  std::string_view method = "bilinear";
  bool crop_to_aspect_ratio = false;  ///< resizes the largest middle part of the new aspect ratio
  bool pad_to_aspect_ratio = false;   ///< adds pixels around the images to the new aspect ratio
  double fill_value = 0.0;            ///< of these pixels
};
/// The images with this height and width, whose own must be known. Pixels are centred in their
/// cells, and nothing is smoothed, as with antialias = False. uint8 images become float32 with
/// "bilinear", on a CPU in one pass, several times as fast as of floating-point images. Throws
/// InvalidArgumentError for another method, and for both ways to the aspect ratio. As
/// tf.image.resize and keras.ops.image.resize.
[[nodiscard]] Tensor resize(const Tensor& images, const Sizes& size,
                            const ResizeOptions& options = {});
/// uint8 images as floating-point numbers of [0, 1], or the reverse, rounded and limited to
/// [0, 255]; between floating dtypes a cast. As tf.image.convert_image_dtype.
[[nodiscard]] Tensor convert_image_dtype(const Tensor& images, DType dtype);

}  // namespace tandem::image
