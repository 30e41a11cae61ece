// The functions that libtandem finds in this module.
#include <algorithm>
#include <array>

#include "core/status.h"
#include "data/images/module/decoding.h"
#include "data/images/module/jpeg.h"
#include "data/images/module/png.h"

namespace tandem::data {
namespace {

bool begins(const DecodeCall& call, std::string_view magic, std::size_t at = 0) {
  if (call.bytes.size() < at + magic.size()) return false;
  return std::equal(
      magic.begin(), magic.end(), call.bytes.begin() + static_cast<std::ptrdiff_t>(at),
      [](char a, std::byte b) { return std::byte(static_cast<unsigned char>(a)) == b; });
}

// Why the bytes are no image that can be decoded.
const char* other_format(const DecodeCall& call) {
  if (call.bytes.empty()) return "an empty file";
  if (begins(call, "GIF8")) return "a GIF image";
  if (begins(call, "BM")) return "a BMP image";
  if (begins(call, "RIFF") && begins(call, "WEBP", 8)) return "a WebP image";
  if (begins(call, "II*") || begins(call, "MM")) return "a TIFF image";
  return "other bytes";
}

}  // namespace

Pixels grey_of(const Pixels& colours) {
  Pixels pixels{colours.height, colours.width, 1, {}};
  pixels.values.reserve(colours.values.size() / 3);
  for (std::size_t at = 0; at < colours.values.size(); at += 3) {
    const unsigned sum =
        299u * colours.values[at] + 587u * colours.values[at + 1] + 114u * colours.values[at + 2];
    pixels.values.push_back(static_cast<std::uint8_t>((sum + 500) / 1000));
  }
  return pixels;
}

void check_size(const DecodeCall& call, std::uint64_t height, std::uint64_t width) {
  if (height * width > static_cast<std::uint64_t>(call.max_pixels))
    fail<InvalidArgumentError>("[{}] {}: expected at most {} pixels (max_pixels), got {} x {}",
                               call.op, call.name, call.max_pixels, height, width);
}

void fail_broken(const DecodeCall& call, const char* format, const char* reason, std::int64_t row,
                 std::int64_t rows) {
  const std::string where = rows > 0 ? fmt::format(", row {} of {}", row, rows) : "";
  fail<DataLossError>("[{}] {}{}: the {} data is broken: {}", call.op, call.name, where, format,
                      reason);
}

}  // namespace tandem::data

extern "C" __attribute__((visibility("default"))) void tandem_decode_image(
    const tandem::data::DecodeCall* call, tandem::data::Pixels* pixels) {
  using namespace tandem::data;
  if (begins(*call, "\x89PNG\r\n\x1a\n"))
    *pixels = decode_png(*call);
  else if (begins(*call, "\xff\xd8\xff"))
    *pixels = decode_jpeg(*call);
  else
    tandem::fail<tandem::InvalidArgumentError>("[{}] {}: expected a JPEG or PNG image, got {}",
                                               call->op, call->name, other_format(*call));
}

extern "C" __attribute__((visibility("default"))) void tandem_encode_image(
    tandem::data::ImageFormat format, const tandem::data::Pixels* pixels, std::int64_t quality,
    std::vector<std::uint8_t>* bytes) {
  using namespace tandem::data;
  *bytes = format == ImageFormat::kPng ? encode_png(*pixels) : encode_jpeg(*pixels, quality);
}
