// Any bytes as an image, and good JPEG and PNG images with damages, result in pixels or a typed
// error.
#include <string>

#include "data/images/codec.h"
#include "fuzz/damage.h"
#include "tandem/errors.h"

namespace {

using tandem::data::ImageFormat;

void decode(std::span<const std::byte> bytes) {
  for (const std::int64_t channels : {0, 1, 3, 4}) try {
      std::vector<std::uint8_t> pixels;
      const auto memory = [&](std::int64_t height, std::int64_t width, std::int64_t of) {
        pixels.resize(static_cast<std::size_t>(height * width * of));
        return pixels.data();
      };
      static_cast<void>(tandem::data::decode({.op = "fuzz",
                                              .name = "input",
                                              .bytes = bytes,
                                              .channels = channels,
                                              .max_pixels = 1 << 16,
                                              .memory = memory}));
    } catch (const tandem::Error&) {
    }
}

std::string good_image(ImageFormat format, std::int64_t channels) {
  tandem::data::Pixels pixels{.height = 20, .width = 17, .channels = channels, .values = {}};
  for (std::int64_t i = 0; i < 20 * 17 * channels; ++i)
    pixels.values.push_back(static_cast<std::uint8_t>(i * i % 251));
  const std::vector<std::uint8_t> bytes = tandem::data::encode(format, pixels, 90);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    static const std::string good[] = {
        good_image(ImageFormat::kPng, 1), good_image(ImageFormat::kPng, 4),
        good_image(ImageFormat::kJpeg, 1), good_image(ImageFormat::kJpeg, 3)};
    decode(std::as_bytes(std::span(bytes, size)));
    for (std::string damaged : good) {
      tandem::fuzz::damage(damaged, {bytes, size});
      decode(std::as_bytes(std::span(damaged)));
    }
  } catch (const tandem::UnavailableError&) {  // a build without the libraries
  }
  return 0;
}
