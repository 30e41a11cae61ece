// The synthetic digits data set, which needs no files.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/parallel.h"
#include "core/status.h"
#include "data/splitmix.h"
#include "data/stream.h"
#include "tandem/datasets.h"
#include "tensor/tensor_impl.h"

namespace tandem::datasets {
namespace {

constexpr int kSide = 28;  // pixels

// 5 x 7 dots per digit: a row per number, the leftmost dot in bit 4.
using Glyph = std::array<std::uint8_t, 7>;
constexpr std::array<Glyph, 10> kGlyphs = {{{0x0e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e},
                                            {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e},
                                            {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f},
                                            {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e},
                                            {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02},
                                            {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e},
                                            {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e},
                                            {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08},
                                            {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e},
                                            {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c}}};

// The glyph at a point, in dots from its centre, interpolated between the dots.
float ink_at(const Glyph& glyph, float x, float y) {
  const auto dot = [&](int column, int row) {
    const bool inside = column >= 0 && column < 5 && row >= 0 && row < 7;
    return inside && (glyph[static_cast<std::size_t>(row)] >> (4 - column) & 1) != 0 ? 1.0f : 0.0f;
  };
  const float left = std::floor(x + 2.0f), top = std::floor(y + 3.0f);
  const float right_part = x + 2.0f - left, lower_part = y + 3.0f - top;
  const int column = static_cast<int>(left), row = static_cast<int>(top);
  return (1.0f - lower_part) *
             ((1.0f - right_part) * dot(column, row) + right_part * dot(column + 1, row)) +
         lower_part *
             ((1.0f - right_part) * dot(column, row + 1) + right_part * dot(column + 1, row + 1));
}

// Paints a glyph of random size, slant, place, thickness and contrast, with noise.
void paint(const Glyph& glyph, data::SplitMix random, std::uint8_t* pixels) {
  const auto between = [&](float low, float high) {
    return low + (high - low) * static_cast<float>(random.uniform());
  };
  const float angle = between(-0.4f, 0.4f), slant = between(-0.4f, 0.4f);
  const float width = between(1.8f, 2.7f), height = between(1.7f, 2.4f);  // of a dot, in pixels
  const float right = between(-2.2f, 2.2f), down = between(-2.2f, 2.2f);
  const float bend = between(-0.15f, 0.15f);
  const float thinness = between(0.2f, 0.45f), ink = between(150.0f, 255.0f);
  const float noise = between(0.0f, 60.0f);
  const float sine = std::sin(angle), cosine = std::cos(angle);
  for (int i = 0; i < kSide * kSide; ++i) {
    const float px = static_cast<float>(i % kSide) + 0.5f - kSide / 2 - right;
    const float py = static_cast<float>(i / kSide) + 0.5f - kSide / 2 - down;
    const float y = (cosine * py - sine * px) / height;
    const float x = (cosine * px + sine * py) / width + slant * y + bend * y * y;
    const float cover = std::clamp((ink_at(glyph, x, y) - thinness) * 3.0f, 0.0f, 1.0f);
    const float value = cover * ink + noise * (static_cast<float>(random.uniform()) - 0.5f);
    pixels[i] = static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
  }
}

LabelledImages paint_digits(std::int64_t count, std::uint64_t key) {
  const data::PipelineScope scope;
  DeviceImpl& host = DeviceManager::get().host();
  LabelledImages set{.images = make_tensor(host, {count, kSide, kSide, 1}, uint8),
                     .labels = make_tensor(host, {count}, int64)};
  auto* pixels = reinterpret_cast<std::uint8_t*>(impl_of(set.images).data());
  auto* labels = reinterpret_cast<std::int64_t*>(impl_of(set.labels).data());
  parallel_for(count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      data::SplitMix random(data::mix(key, static_cast<std::uint64_t>(i)));
      const std::size_t digit = random.below(kGlyphs.size());
      labels[i] = static_cast<std::int64_t>(digit);
      paint(kGlyphs[digit], random, pixels + i * kSide * kSide);
    }
  });
  return set;
}

}  // namespace

TrainTest synthetic_digits(const SyntheticDigitsOptions& options) {
  if (options.train < 0 || options.test < 0)
    fail<InvalidArgumentError>("[synthetic_digits] expected counts of at least 0, got {} and {}",
                               options.train, options.test);
  return {.train = paint_digits(options.train, data::mix(options.seed, 0)),
          .test = paint_digits(options.test, data::mix(options.seed, 1))};
}

}  // namespace tandem::datasets
