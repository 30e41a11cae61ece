#include "data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

// Compiled without fused multiply-adds (src/CMakeLists.txt), which would have other bits than
// operations have.
template <class T>
TANDEM_INLINED T between(T a, T b, T weight) {
  return a + (b - a) * weight;
}

// Four floats: a pixel of up to four channels.
using Quad = float __attribute__((vector_size(16)));
TANDEM_INLINED Quad quad_at(const float* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof quad);
  return quad;
}

struct Resize {
  const std::uint8_t* images;
  float* out;
  std::int64_t from_height, from_width, channels, to_height, to_width;
  const std::int64_t *lower_rows, *upper_rows;
  const float* row_weights;
  // The places of pixels within a row.
  const std::int64_t *lower, *upper;
  const float* weights;
};

// Interpolates between two rows. `row` has space for 3 more floats.
TANDEM_INLINED void resize_height(const Resize& r, std::int64_t image, std::int64_t y, float* row) {
  const std::int64_t size = r.from_width * r.channels;
  const std::uint8_t* base = r.images + image * r.from_height * size;
  const std::uint8_t* above = base + r.lower_rows[y] * size;
  const std::uint8_t* below = base + r.upper_rows[y] * size;
  const float weight = r.row_weights[y];
  for (std::int64_t i = 0; i < size; ++i)
    row[i] = between(static_cast<float>(above[i]), static_cast<float>(below[i]), weight);
}

TANDEM_INLINED void resize_width(const Resize& r, const float* row, float* out) {
  std::int64_t x = 0;
  // Each quad's surplus is overwritten by the next pixel, of which there is none after the last.
  if (r.channels == 3 || r.channels == 4)
    for (; x < r.to_width - (r.channels == 3 ? 1 : 0); ++x) {
      const float weight = r.weights[x];
      const Quad pixel = between(quad_at(row + r.lower[x]), quad_at(row + r.upper[x]),
                                 Quad{weight, weight, weight, weight});
      std::memcpy(out + x * r.channels, &pixel, sizeof pixel);
    }
  for (; x < r.to_width; ++x)
    for (std::int64_t c = 0; c < r.channels; ++c)
      out[x * r.channels + c] = between(row[r.lower[x] + c], row[r.upper[x] + c], r.weights[x]);
}

// The rows [begin, end) of all images.
TANDEM_INLINED void resize_rows(const Resize* resize, float* row, std::int64_t begin,
                                std::int64_t end) {
  const Resize& r = *resize;
  for (std::int64_t i = begin; i < end; ++i) {
    resize_height(r, i / r.to_height, i % r.to_height, row);
    resize_width(r, row, r.out + i * r.to_width * r.channels);
  }
}

std::vector<float> in_float32(const std::vector<double>& values) {
  return std::vector<float>(values.begin(), values.end());
}

constexpr std::int64_t kElementsPerThread = 1 << 16;

}  // namespace

Taps taps(std::int64_t from, std::int64_t to, bool nearest) {
  Taps taps;
  const auto last = static_cast<double>(from - 1);
  for (std::int64_t i = 0; i < to; ++i) {
    const double place =
        (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to);
    const double pixel = nearest ? place : place - 0.5;
    taps.lower.push_back(static_cast<std::int64_t>(std::clamp(std::floor(pixel), 0.0, last)));
    taps.upper.push_back(static_cast<std::int64_t>(std::clamp(std::ceil(pixel), 0.0, last)));
    taps.weights.push_back(pixel - std::floor(pixel));
  }
  return taps;
}

Tensor resized_pixels(const Tensor& images, std::int64_t height, std::int64_t width) {
  const Shape& shape = images.shape();
  const int axis = shape.rank() - 3;
  const std::int64_t channels = shape.word(axis + 2);
  Dims sizes = shape.words();
  sizes[static_cast<std::size_t>(axis)] = height;
  sizes[static_cast<std::size_t>(axis) + 1] = width;
  Tensor result = make_tensor(DeviceManager::get().host(), Shape(sizes), float32);
  if (result.num_elements() == 0) return result;
  const Taps rows = taps(shape.word(axis), height, false);
  Taps columns = taps(shape.word(axis + 1), width, false);
  for (std::vector<std::int64_t>* each : {&columns.lower, &columns.upper})
    for (std::int64_t& place : *each) place *= channels;
  const std::vector<float> row_weights = in_float32(rows.weights),
                           weights = in_float32(columns.weights);
  const Resize resize{.images = reinterpret_cast<const std::uint8_t*>(impl_of(images).data()),
                      .out = reinterpret_cast<float*>(impl_of(result).data()),
                      .from_height = shape.word(axis),
                      .from_width = shape.word(axis + 1),
                      .channels = channels,
                      .to_height = height,
                      .to_width = width,
                      .lower_rows = rows.lower.data(),
                      .upper_rows = rows.upper.data(),
                      .row_weights = row_weights.data(),
                      .lower = columns.lower.data(),
                      .upper = columns.upper.data(),
                      .weights = weights.data()};
  const std::int64_t per_row = (resize.from_width + width) * channels;
  parallel_for((axis == 0 ? 1 : shape.word(0)) * height, kElementsPerThread / per_row,
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<float> row(static_cast<std::size_t>(resize.from_width * channels + 3));
                 run_version<resize_rows>(&resize, row.data(), begin, end);
               });
  return result;
}

}  // namespace tandem::data
