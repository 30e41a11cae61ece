// Resizing of pixels, without operations.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/tensor.h"

namespace tandem::data {

// The pixels along an axis from which those of another size are interpolated:
// x[lower] + (x[upper] - x[lower]) * weight.
struct Taps {
  std::vector<std::int64_t> lower, upper;
  std::vector<double> weights;
};
Taps taps(std::int64_t from, std::int64_t to, bool nearest);

// uint8 images, [..., height, width, channels], on the host, as float32 with this height and width,
// bilinear. The same bits as the operations of image::resize() on the images as float32.
Tensor resized_pixels(const Tensor& images, std::int64_t height, std::int64_t width);

}  // namespace tandem::data
