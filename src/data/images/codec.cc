#include "data/images/codec.h"

#include <cstring>

#include "core/module.h"
#include "core/status.h"
#include "data/formats.h"
#include "data/stream.h"
#include "tandem/image_files.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {

Pixels decode(const DecodeCall& call) {
  static DecodeFunction* const function =
      load<DecodeFunction>(kImagesModule, "tandem_decode_image");
  Pixels pixels;
  function(&call, &pixels);
  return pixels;
}

std::vector<std::uint8_t> encode(ImageFormat format, const Pixels& pixels, std::int64_t quality) {
  static EncodeFunction* const function =
      load<EncodeFunction>(kImagesModule, "tandem_encode_image");
  std::vector<std::uint8_t> bytes;
  function(format, &pixels, quality, &bytes);
  return bytes;
}

}  // namespace tandem::data

namespace tandem::image {
namespace {

Tensor bytes_on_host(const std::vector<std::uint8_t>& values, const Shape& shape) {
  Tensor tensor = make_tensor(DeviceManager::get().host(), shape, uint8);
  if (!values.empty()) std::memcpy(impl_of(tensor).data(), values.data(), values.size());
  return tensor;
}

Tensor decoded(std::string_view op, std::string_view name, std::span<const std::byte> bytes,
               const DecodeOptions& options) {
  const auto& [channels, max_pixels] = options;
  if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
    fail<InvalidArgumentError>("[{}] expected 0, 1, 3 or 4 channels, got {}", op, channels);
  Tensor tensor;
  const auto memory = [&](std::int64_t height, std::int64_t width, std::int64_t of) {
    tensor = make_tensor(DeviceManager::get().host(), {height, width, of}, uint8);
    return reinterpret_cast<std::uint8_t*>(impl_of(tensor).data());
  };
  const data::Pixels pixels = data::decode({op, name, bytes, channels, max_pixels, memory});
  if (tensor.defined()) return tensor;
  return bytes_on_host(pixels.values, {pixels.height, pixels.width, pixels.channels});
}

// `most`: 3 or 4 channels.
Tensor encoded(const char* op, data::ImageFormat format, const Tensor& image, std::int64_t most,
               std::int64_t quality) {
  if (image.dtype() != uint8)
    fail<DTypeError>("[{}] expected pixels of dtype uint8, got {}", op, name_of(image.dtype()));
  const Shape& shape = image.shape();
  const std::int64_t channels = shape.rank() == 3 ? shape.word(2) : 0;
  if (shape.num_elements() == 0 || (channels != 1 && (channels < 3 || channels > most)))
    fail<ShapeError>(
        "[{}] expected pixels [height, width, channels] with {} channels, got shape {}", op,
        most == 3 ? "1 or 3" : "1, 3 or 4", shape.to_string());
  const data::PipelineScope scope;
  const data::Pixels pixels{shape.word(0), shape.word(1), shape.word(2),
                            image.cpu().to_vector<std::uint8_t>()};
  const std::vector<std::uint8_t> bytes = data::encode(format, pixels, quality);
  return bytes_on_host(bytes, {static_cast<std::int64_t>(bytes.size())});
}

}  // namespace

Tensor decode_image(const Tensor& bytes, const DecodeOptions& options) {
  if (bytes.dtype() != uint8 || bytes.rank() != 1)
    fail<InvalidArgumentError>("[decode_image] expected bytes, uint8 [size], got {} {}",
                               name_of(bytes.dtype()), bytes.shape().to_string());
  const data::PipelineScope scope;
  const std::vector<std::uint8_t> contents = bytes.cpu().to_vector<std::uint8_t>();
  return decoded("decode_image", "the image", std::as_bytes(std::span(contents)), options);
}

Tensor read_image(const std::string& path, const DecodeOptions& options) {
  const data::PipelineScope scope;
  return decoded("read_image", path, data::read_file("read_image", path), options);
}

Tensor encode_png(const Tensor& image) {
  return encoded("encode_png", data::ImageFormat::kPng, image, 4, 0);
}

Tensor encode_jpeg(const Tensor& image, std::int64_t quality) {
  if (quality < 1 || quality > 100)
    fail<InvalidArgumentError>("[encode_jpeg] expected a quality of [1, 100], got {}", quality);
  return encoded("encode_jpeg", data::ImageFormat::kJpeg, image, 3, quality);
}

}  // namespace tandem::image
