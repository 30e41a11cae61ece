#include "train/checkpoint/safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "device/device_manager.h"
#include "tensor/tensor_impl.h"
#include "train/checkpoint/file_errors.h"
#include "train/checkpoint/header_json.h"

namespace tandem {
namespace {

// Tensors with larger elements first, so that all are aligned to their element size without
// padding.
void put_in_file_order(std::vector<TensorToWrite>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return size_of(a.dtype) > size_of(b.dtype);
  });
}

std::vector<SafetensorsEntry> entries_of(const std::vector<TensorToWrite>& tensors,
                                         const std::string& what) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.name == kMetadataEntry)
      fail<InvalidArgumentError>("[save] '{}': a tensor cannot be named '{}'", what, tensor.name);
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(tensor.shape.num_elements()) * size_of(tensor.dtype);
    entries.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .begin = offset,
                       .end = offset + bytes});
    offset += bytes;
  }
  return entries;
}

std::vector<std::uint32_t> chunk_crcs_of(const std::byte* data, std::uint64_t bytes) {
  std::vector<std::uint32_t> crcs;
  for (std::uint64_t at = 0; at < bytes; at += kChunkBytes)
    crcs.push_back(crc_of(0, data + at, std::min(kChunkBytes, bytes - at)));
  return crcs;
}

// `out`: has write(data, bytes) and overwrite(offset, data, bytes).
template <class Out>
WrittenFile write_to(Out& out, std::vector<TensorToWrite> tensors,
                     const std::map<std::string, std::string>& metadata, const std::string& what) {
  put_in_file_order(tensors);
  const std::vector<SafetensorsEntry> entries = entries_of(tensors, what);
  const HeaderText header = make_safetensors_header(entries, metadata, what);
  const auto length = static_cast<std::uint64_t>(header.text.size());
  std::uint32_t checksum = crc_of(0, header.text.data(), header.text.size());
  WrittenFile written{.data_begin = sizeof(length) + length};

  out.write(&length, sizeof(length));
  out.write(header.text.data(), header.text.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    WrittenTensor& record = written.tensors.emplace_back(WrittenTensor{.entry = entries[i]});
    const std::uint64_t bytes = record.entry.end - record.entry.begin;
    if (bytes == 0) continue;
    const Tensor host = copy_to_device(tensors[i].value(), DeviceManager::get().host());
    const std::byte* data = impl_of(host).data();
    TANDEM_ASSERT(impl_of(host).bytes() == bytes);
    record.chunk_crcs = chunk_crcs_of(data, bytes);
    for (std::uint64_t at = 0, chunk = 0; at < bytes; at += kChunkBytes, ++chunk)
      checksum = static_cast<std::uint32_t>(
          crc32_combine(checksum, record.chunk_crcs[chunk],
                        static_cast<z_off_t>(std::min(kChunkBytes, bytes - at))));
    out.write(data, bytes);
  }
  const std::string digits = fmt::format("{:08x}", checksum);
  out.overwrite(sizeof(length) + header.checksum_at, digits.data(), digits.size());
  written.bytes = written.data_begin + (entries.empty() ? 0 : entries.back().end);
  return written;
}

class MemoryFile {
 public:
  void write(const void* data, std::size_t bytes) {
    text_.append(static_cast<const char*>(data), bytes);
  }
  void overwrite(std::size_t offset, const void* data, std::size_t bytes) {
    text_.replace(offset, bytes, static_cast<const char*>(data), bytes);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::vector<TensorToWrite> to_write(const std::map<std::string, Tensor>& tensors,
                                    const std::string& what) {
  std::vector<TensorToWrite> result;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined())
      fail<InvalidArgumentError>("[save] '{}': tensor '{}' is undefined", what, name);
    result.push_back(
        {.name = name, .dtype = tensor.dtype(), .shape = tensor.shape(), .value = [tensor] {
           return tensor;
         }});
  }
  return result;
}

WrittenFile write_safetensors(AtomicFile& out, std::vector<TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::string& what) {
  return write_to(out, std::move(tensors), metadata, what);
}

TensorFile read_safetensors(std::istream& in, std::uint64_t size, const std::string& what) {
  const auto read = [&in](void* to, std::size_t bytes) {
    in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    return static_cast<std::size_t>(in.gcount());
  };
  SafetensorsHeader header = read_safetensors_header(read, size, what);
  const MemoryTagScope tag(MemoryTag::kOther);
  TensorFile file{.metadata = std::move(header.metadata)};
  std::uint32_t actual = header.header_crc;
  for (const SafetensorsEntry& entry : header.entries) {
    if (!entry.foreign.empty())
      fail_dtype(entry.foreign, what, fmt::format("tensor '{}'", entry.name));
    Tensor tensor = make_tensor(DeviceManager::get().host(), entry.shape, entry.dtype);
    std::byte* data = impl_of(tensor).data();
    const auto bytes = static_cast<std::size_t>(entry.end - entry.begin);
    if (bytes > 0) {
      if (read(data, bytes) != bytes) fail_damaged(what, "it ends within " + entry.name);
      actual = crc_of(actual, data, bytes);
    }
    require_booleans(entry.dtype, data, bytes, what, entry.name);
    file.tensors.emplace(entry.name, std::move(tensor));
  }
  if (header.checksum && *header.checksum != actual)
    fail_damaged(what,
                 fmt::format("the checksum is {:08x}, expected {:08x}", actual, *header.checksum));
  return file;
}

TensorFile load_safetensors(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    fail<NotFoundError>("[load] file '{}' does not exist", path.string());
  if (!std::filesystem::is_regular_file(status))
    fail<FailedPreconditionError>("[load] '{}' is not a regular file", path.string());
  std::ifstream in(path, std::ios::binary);
  const std::uintmax_t size = in ? std::filesystem::file_size(path, error) : 0;
  if (!in || error)
    fail<FailedPreconditionError>("[load] cannot read '{}': {}", path.string(),
                                  std::strerror(errno));
  return read_safetensors(in, size, path.string());
}

TensorFile parse_safetensors(const std::string& bytes, const std::string& what) {
  std::istringstream in(bytes);
  return read_safetensors(in, bytes.size(), what);
}

std::string safetensors_bytes(const TensorFile& file, const std::string& what) {
  MemoryFile out;
  write_to(out, to_write(file.tensors, what), file.metadata, what);
  return out.take();
}

void expect_safetensors_name(const std::filesystem::path& path) {
  static constexpr std::array<std::string_view, 10> kOthers = {
      ".h5", ".hdf5", ".keras", ".npy", ".npz", ".onnx", ".pb", ".pt", ".pth", ".tflite"};
  const std::string extension = path.extension().string();
  if (std::find(kOthers.begin(), kOthers.end(), extension) != kOthers.end())
    fail<InvalidArgumentError>(
        "[save] '{}': the file has the format safetensors, and '{}' is the extension of another "
        "one: expected '.safetensors', or an extension that says no format",
        path.string(), extension);
}

void save_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  expect_safetensors_name(path);
  const auto tensors = to_write(file.tensors, path.string());
  AtomicFile out(path);
  write_safetensors(out, tensors, file.metadata, path.string());
  out.commit();
}

}  // namespace tandem
