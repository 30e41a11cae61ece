// Readers of IDX and CIFAR-10 files, and of the data sets in these formats.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "data/formats.h"
#include "data/stream.h"
#include "ops/array/strided_copy.h"
#include "tandem/array.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {

std::vector<std::byte> read_file(std::string_view op, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    fail<NotFoundError>("[{}] {}: no such file", op, path);
  if (status.type() == std::filesystem::file_type::directory)
    fail<InvalidArgumentError>("[{}] {}: expected a file, got a directory", op, path);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail<NotFoundError>("[{}] {}: cannot be opened", op, path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0)));
  file.seekg(0);
  if (!bytes.empty() &&
      !file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    fail<DataLossError>("[{}] {}: expected {} bytes, could read {}", op, path, bytes.size(),
                        file.gcount());
  return bytes;
}

namespace {

bool has_gzip_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

// Reads bytes in memory sequentially. Gzip data is recognised by its magic number and decompressed.
class InflatingReader {
 public:
  // `op` and `name`, the file's name, are for messages.
  InflatingReader(std::string_view op, std::string_view name, std::span<const std::byte> bytes)
      : op_(op), name_(name), rest_(bytes), gzip_(has_gzip_magic(bytes)) {
    constexpr int kGzipWindow = 15 + 16;  // the largest window, in a gzip wrapper
    if (gzip_ && inflateInit2(&zlib_, kGzipWindow) != Z_OK)
      fail<ResourceExhaustedError>("[{}] {}: zlib could not be initialised", op_, name_);
  }
  ~InflatingReader() {
    if (gzip_) inflateEnd(&zlib_);
  }
  InflatingReader(const InflatingReader&) = delete;
  InflatingReader& operator=(const InflatingReader&) = delete;

  // Reads up to `count` bytes; fewer only at the end. Throws DataLossError if gzip data is corrupt
  // or truncated.
  std::size_t read(void* to, std::size_t count) {
    auto* target = static_cast<std::byte*>(to);
    if (!gzip_) {
      const std::size_t got = std::min(count, rest_.size());
      if (got > 0) std::memcpy(target, rest_.data(), got);
      rest_ = rest_.subspan(got);
      return got;
    }
    std::size_t got = 0;
    while (got < count && !ended_) got += inflate_some(target + got, count - got);
    return got;
  }

  // An upper bound on the bytes that are left. Readers check it before they allocate what a header
  // asks for, because a corrupt header may ask for far too much.
  std::size_t max_bytes_left() const {
    constexpr std::size_t kMaxExpansion = 1032;  // of deflate
    return gzip_ ? (rest_.size() + 64) * kMaxExpansion : rest_.size();
  }

 private:
  std::size_t inflate_some(std::byte* to, std::size_t count) {
    const auto chunk = [](std::size_t size) {
      return static_cast<uInt>(std::min<std::size_t>(size, 1u << 30));
    };
    const uInt wanted = chunk(count), given = chunk(rest_.size());
    zlib_.next_out = reinterpret_cast<Bytef*>(to);
    zlib_.avail_out = wanted;
    zlib_.next_in =
        reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));  // zlib does not write it
    zlib_.avail_in = given;
    const int status = inflate(&zlib_, Z_NO_FLUSH);
    rest_ = rest_.subspan(given - zlib_.avail_in);
    if (status == Z_STREAM_END) {
      // A gzip file may hold several streams, and zeros after the last, which fill the blocks of a
      // tape; any other bytes after a stream are corruption.
      if (std::all_of(rest_.begin(), rest_.end(), [](std::byte b) { return b == std::byte{0}; }))
        ended_ = true;
      else if (!has_gzip_magic(rest_) || inflateReset(&zlib_) != Z_OK)
        fail<DataLossError>("[{}] {}: expected the end of the gzip data, got {} more bytes", op_,
                            name_, rest_.size());
    } else if (status == Z_MEM_ERROR) {
      fail<ResourceExhaustedError>("[{}] {}: out of memory while decompressing gzip data", op_,
                                   name_);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail<DataLossError>("[{}] {}: the gzip data is corrupt ({})", op_, name_,
                          zlib_.msg ? zlib_.msg : zError(status));
    } else if (rest_.empty() && zlib_.avail_out == wanted) {
      fail<DataLossError>("[{}] {}: the gzip data is truncated", op_, name_);
    }
    return wanted - zlib_.avail_out;
  }

  std::string_view op_, name_;
  std::span<const std::byte> rest_;
  bool gzip_ = false;
  bool ended_ = false;  // the gzip data has ended
  z_stream zlib_{};
};

struct IdxHeader {
  int type = 0;
  std::size_t element_size = 1;
  Shape shape = Shape::scalar();
};

std::size_t idx_element_size(int type) {
  switch (type) {
    case 0x08:
    case 0x09: return 1;  // unsigned and signed bytes
    case 0x0b: return 2;  // int16
    case 0x0c:
    case 0x0d: return 4;  // int32, float32
    case 0x0e: return 8;  // float64
    default: return 0;
  }
}

IdxHeader read_idx_header(InflatingReader& reader, std::string_view name) {
  std::array<std::uint8_t, 4> magic{};
  const std::size_t got = reader.read(magic.data(), magic.size());
  if (got == 0)
    fail<DataLossError>("[read_idx] {}: expected an IDX header, the file is empty", name);
  if (got < magic.size())
    fail<DataLossError>("[read_idx] {}: expected a header of at least 4 bytes, got {}", name, got);
  IdxHeader header{.type = magic[2], .element_size = idx_element_size(magic[2])};
  const int rank = magic[3];
  if (magic[0] != 0 || magic[1] != 0 || header.element_size == 0 || rank < 1 || rank > kMaxRank)
    fail<InvalidArgumentError>(
        "[read_idx] {}: expected the magic number of an IDX file (00 00, type 08-0e, 1 to {} "
        "axes), got {:02x} {:02x} {:02x} {:02x}",
        name, kMaxRank, magic[0], magic[1], magic[2], magic[3]);
  Dims dims;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> size{};
    if (reader.read(size.data(), size.size()) < size.size())
      fail<DataLossError>("[read_idx] {}: expected a header of {} bytes, the file ends inside it",
                          name, 4 + 4 * rank);
    dims.push_back(std::int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
  }
  header.shape = Shape(dims);
  return header;
}

// The size of the elements in bytes according to the header. Throws DataLossError if the file
// cannot hold that many.
std::size_t announced_bytes(const IdxHeader& header, const InflatingReader& reader,
                            std::string_view name) {
  // Signed, because counts of elements are: the product of the nonzero sizes must not overflow
  // int64 either.
  auto bytes = static_cast<std::int64_t>(header.element_size);
  bool fits = true;
  bool empty = false;
  for (const std::int64_t size : header.shape.words()) {
    empty = empty || size == 0;
    if (size > 0) fits = !__builtin_mul_overflow(bytes, size, &bytes) && fits;
  }
  if (fits && empty) return 0;
  if (!fits || static_cast<std::size_t>(bytes) > reader.max_bytes_left())
    fail<DataLossError>(
        "[read_idx] {}: expected elements of shape {}, more than the file can hold (at most {} "
        "bytes)",
        name, header.shape.to_string(), reader.max_bytes_left());
  return static_cast<std::size_t>(bytes);
}

template <class Stored, class T>
void from_big_endian(const std::byte* from, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::array<std::byte, sizeof(Stored)> bytes{};
    std::reverse_copy(from + i * std::int64_t{sizeof(Stored)},
                      from + (i + 1) * std::int64_t{sizeof(Stored)}, bytes.begin());
    to[i] = static_cast<T>(std::bit_cast<Stored>(bytes));
  }
}

DType idx_dtype(int type) {
  return type == 0x08 ? uint8 : type == 0x0d ? float32 : type == 0x0e ? float64 : int32;
}

}  // namespace

Tensor parse_idx(std::span<const std::byte> bytes, std::string_view name) {
  InflatingReader reader("read_idx", name, bytes);
  const IdxHeader header = read_idx_header(reader, name);
  const std::size_t expected = announced_bytes(header, reader, name);
  Tensor tensor = make_tensor(DeviceManager::get().host(), header.shape, idx_dtype(header.type));
  TensorImpl& impl = impl_of(tensor);
  std::vector<std::byte> stored(header.type == 0x08 ? 0 : expected);
  const std::size_t got = reader.read(header.type == 0x08 ? impl.data() : stored.data(), expected);
  if (got < expected)
    fail<DataLossError>("[read_idx] {}: expected {} bytes of elements of shape {}, got {}", name,
                        expected, header.shape.to_string(), got);
  // This read also verifies the checksum at the end of gzip data.
  std::byte extra;
  if (reader.read(&extra, 1) != 0)
    fail<DataLossError>("[read_idx] {}: expected {} bytes of elements of shape {}, got more", name,
                        expected, header.shape.to_string());
  const std::int64_t count = header.shape.num_elements();
  switch (header.type) {
    case 0x09:
      from_big_endian<std::int8_t>(stored.data(), count,
                                   reinterpret_cast<std::int32_t*>(impl.data()));
      break;
    case 0x0b:
      from_big_endian<std::int16_t>(stored.data(), count,
                                    reinterpret_cast<std::int32_t*>(impl.data()));
      break;
    case 0x0c:
      from_big_endian<std::int32_t>(stored.data(), count,
                                    reinterpret_cast<std::int32_t*>(impl.data()));
      break;
    case 0x0d:
      from_big_endian<float>(stored.data(), count, reinterpret_cast<float*>(impl.data()));
      break;
    case 0x0e:
      from_big_endian<double>(stored.data(), count, reinterpret_cast<double*>(impl.data()));
      break;
    default: break;
  }
  return tensor;
}

tandem::datasets::LabelledImages parse_cifar10(std::span<const std::byte> bytes,
                                               std::string_view name) {
  constexpr std::int64_t kPixels = 32 * 32, kRecord = 1 + 3 * kPixels, kClasses = 10;
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size == 0)
    fail<DataLossError>("[read_cifar10] {}: expected records of {} bytes, the file is empty", name,
                        kRecord);
  if (size % kRecord != 0)
    fail<DataLossError>(
        "[read_cifar10] {}: expected a multiple of {} bytes (a label and an image each), got {}",
        name, kRecord, size);
  const std::int64_t count = size / kRecord;
  tandem::datasets::LabelledImages set{
      .images = make_tensor(DeviceManager::get().host(), {count, 32, 32, 3}, uint8),
      .labels = make_tensor(DeviceManager::get().host(), {count}, int64),
      .classes = kClasses};
  auto* labels = reinterpret_cast<std::int64_t*>(impl_of(set.labels).data());
  for (std::int64_t i = 0; i < count; ++i) {
    labels[i] = static_cast<std::int64_t>(bytes[static_cast<std::size_t>(i * kRecord)]);
    if (labels[i] >= kClasses)
      fail<InvalidArgumentError>(
          "[read_cifar10] {}: expected labels of [0, {}), got {} in record {}", name, kClasses,
          labels[i], i);
  }
  StridedCopy planes_to_channels;
  planes_to_channels.set_offset(1);
  planes_to_channels.add_axis(count, kRecord);
  planes_to_channels.add_axis(kPixels, 1);
  planes_to_channels.add_axis(3, kPixels);
  planes_to_channels.run(impl_of(set.images).data(), bytes.data(), 1);
  return set;
}

}  // namespace tandem::data

namespace tandem::datasets {
namespace {

using data::PipelineScope;

// The path of the file `name` or `name`.gz in `directory`.
std::string find_idx(const std::string& directory, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = (std::filesystem::path(directory) / (name + suffix)).string();
    if (std::filesystem::exists(path)) return path;
  }
  fail<NotFoundError>("[mnist] {}: expected the file {} or {}.gz, found neither", directory, name,
                      name);
}

LabelledImages read_mnist_split(const std::string& directory, const std::string& split) {
  const std::string images_path = find_idx(directory, split + "-images-idx3-ubyte");
  const std::string labels_path = find_idx(directory, split + "-labels-idx1-ubyte");
  const Tensor images = read_idx(images_path);
  const Tensor labels = read_idx(labels_path);
  if (images.dtype() != uint8 || !Shape({-1, 28, 28}).matches(images.shape()))
    fail<InvalidArgumentError>("[mnist] {}: expected uint8 images of shape (?, 28, 28), got {} {}",
                               images_path, name_of(images.dtype()), images.shape().to_string());
  if (labels.dtype() != uint8 || !(labels.shape() == Shape({images.size_word(0)})))
    fail<InvalidArgumentError>(
        "[mnist] {}: expected uint8 labels of shape {} for the images of {}, got {} {}",
        labels_path, Shape({images.size_word(0)}).to_string(), images_path, name_of(labels.dtype()),
        labels.shape().to_string());
  LabelledImages set{.images = reshape(images, {images.size_word(0), 28, 28, 1}),
                     .labels = make_tensor(impl_of(labels).device(), labels.shape(), int64)};
  const auto* stored = labels.data<std::uint8_t>();
  auto* converted = reinterpret_cast<std::int64_t*>(impl_of(set.labels).data());
  for (std::int64_t i = 0; i < labels.size(); ++i) {
    if (stored[i] >= set.classes)
      fail<InvalidArgumentError>("[mnist] {}: expected labels of [0, {}), got {} at position {}",
                                 labels_path, set.classes, stored[i], i);
    converted[i] = stored[i];
  }
  return set;
}

}  // namespace

LabelledImages LabelledImages::take(std::int64_t count) const {
  if (count < 0)
    fail<InvalidArgumentError>("[LabelledImages] expected a count of at least 0, got {}", count);
  const std::int64_t rows = std::min(count, size());
  return {.images = slice_rows(images, 0, rows),
          .labels = slice_rows(labels, 0, rows),
          .classes = classes};
}

Tensor read_idx(const std::string& path) {
  const PipelineScope scope;
  return data::parse_idx(data::read_file("read_idx", path), path);
}

LabelledImages read_cifar10(const std::string& path) {
  const PipelineScope scope;
  return data::parse_cifar10(data::read_file("read_cifar10", path), path);
}

data::Dataset cifar10_examples(const std::string& path) { return read_cifar10(path).dataset(); }
data::Dataset idx_rows(const std::string& path) {
  return data::Dataset::from_tensor_slices(read_idx(path));
}

TrainTest mnist(const std::string& directory) {
  const PipelineScope scope;
  return {.train = read_mnist_split(directory, "train"),
          .test = read_mnist_split(directory, "t10k")};
}

TrainTest cifar10(const std::string& directory) {
  const PipelineScope scope;
  std::vector<Tensor> images, labels;
  for (int i = 1; i <= 5; ++i) {
    const std::string path =
        (std::filesystem::path(directory) / fmt::format("data_batch_{}.bin", i)).string();
    if (!std::filesystem::exists(path)) continue;
    const LabelledImages batch = read_cifar10(path);
    images.push_back(batch.images);
    labels.push_back(batch.labels);
  }
  if (images.empty())
    fail<NotFoundError>(
        "[cifar10] {}: expected at least one of data_batch_1.bin .. data_batch_5.bin, found none",
        directory);
  LabelledImages train =
      images.size() == 1 ? LabelledImages{.images = images[0], .labels = labels[0]}
                         : LabelledImages{.images = concat(images, 0), .labels = concat(labels, 0)};
  return {.train = std::move(train),
          .test = read_cifar10((std::filesystem::path(directory) / "test_batch.bin").string())};
}

}  // namespace tandem::datasets
