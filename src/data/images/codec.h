// Images as bytes of JPEG and PNG files, by the module `images` (core/module.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::data {

// Rows of pixels, channels-last.
struct Pixels {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> values;
};

// See image::DecodeOptions. `name`: of the file, for messages.
struct DecodeCall {
  std::string_view op;
  std::string_view name;
  std::span<const std::byte> bytes;
  std::int64_t channels = 0;
  std::int64_t max_pixels = 0;
  // Memory for an image of this height, width and channels. Pixels that need no conversion are
  // decoded into it, and not into Pixels::values, which stays empty: that saves a copy.
  std::function<std::uint8_t*(std::int64_t, std::int64_t, std::int64_t)> memory{};
};

enum class ImageFormat { kPng, kJpeg };

Pixels decode(const DecodeCall& call);
std::vector<std::uint8_t> encode(ImageFormat format, const Pixels& pixels, std::int64_t quality);

// The functions of the module.
using DecodeFunction = void(const DecodeCall* call, Pixels* pixels);
using EncodeFunction = void(ImageFormat format, const Pixels* pixels, std::int64_t quality,
                            std::vector<std::uint8_t>* bytes);

}  // namespace tandem::data
