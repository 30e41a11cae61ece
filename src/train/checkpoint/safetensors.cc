#include "train/checkpoint/safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/json.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"

namespace tandem {

namespace {

constexpr std::array<std::pair<DType, const char*>, 15> kDTypeNames = {{{float32, "F32"},
                                                                        {float64, "F64"},
                                                                        {float16, "F16"},
                                                                        {bfloat16, "BF16"},
                                                                        {int32, "I32"},
                                                                        {int64, "I64"},
                                                                        {uint8, "U8"},
                                                                        {bool_, "BOOL"},
                                                                        {int8, "I8"},
                                                                        {int16, "I16"},
                                                                        {uint16, "U16"},
                                                                        {uint32, "U32"},
                                                                        {uint64, "U64"},
                                                                        {float8_e4m3fn, "F8_E4M3"},
                                                                        {float8_e5m2, "F8_E5M2"}}};

}  // namespace

const char* format_name(DType dtype) {
  return std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                      [&](const auto& known) { return known.first == dtype; })
      ->second;
}

Json parse_object(const std::string& text, const std::string& what, const std::string& part) {
  try {
    Json value = Json::parse(text, part);
    if (!value.is_object()) fail_damaged(what, fmt::format("{} is not a JSON object", part));
    return value;
  } catch (const JsonError& e) {
    fail_damaged(what, e.what());
  }
}

const Json& member(const Json& object, const char* key, const std::string& what,
                   const std::string& part) {
  const Json* found = object.find(key);
  if (!found) fail_damaged(what, fmt::format("{} has no '{}'", part, key));
  return *found;
}

std::optional<DType> dtype_named(const std::string& name) {
  const auto known = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                  [&](const auto& candidate) { return candidate.second == name; });
  if (known == kDTypeNames.end()) return std::nullopt;
  return known->first;
}

void fail_dtype(const std::string& name, const std::string& what, const std::string& part) {
  fail<InvalidArgumentError>(
      "[load] '{}': {} has dtype '{}', expected one of F32, F64, F16, BF16, I32, I64, U8, BOOL, "
      "I8, "
      "I16, U16, U32, U64, F8_E4M3, F8_E5M2",
      what, part, name);
}

DType parse_dtype(const Json& value, const std::string& what, const std::string& part) {
  const std::string name = parse_string(value, what, fmt::format("the dtype of {}", part));
  const std::optional<DType> dtype = dtype_named(name);
  if (!dtype) fail_dtype(name, what, part);
  return *dtype;
}

Shape parse_shape(const Json& value, const std::string& what, const std::string& part) {
  if (!value.is_array() || !std::ranges::all_of(value.array(), &Json::is_count))
    fail_damaged(what, fmt::format("the shape of {} is not a list of sizes", part));
  if (value.array().size() > static_cast<std::size_t>(kMaxRank))
    fail<InvalidArgumentError>("[load] '{}': {} has {} axes, expected at most {}", what, part,
                               value.array().size(), kMaxRank);
  Dims sizes;
  std::int64_t elements = 1;
  for (const Json& size : value.array()) {
    const auto count = size.count();
    if (count > INT64_MAX ||
        __builtin_mul_overflow(elements, std::max<std::uint64_t>(count, 1), &elements))
      fail_damaged(what, fmt::format("{} has more elements than can be counted", part));
    sizes.push_back(static_cast<std::int64_t>(count));
  }
  const Shape shape(sizes.span());
  if (shape.too_large())
    fail_damaged(what, fmt::format("{} has shape {}", part, shape.to_string()));
  return shape;
}

std::uint64_t parse_count(const Json& value, const std::string& what, const std::string& part) {
  if (!value.is_count()) fail_damaged(what, fmt::format("{} is not a number", part));
  return value.count();
}

std::string parse_string(const Json& value, const std::string& what, const std::string& part) {
  if (!value.is_string()) fail_damaged(what, fmt::format("{} is not a string", part));
  return value.text();
}

std::uint32_t parse_crc(const std::string& digits, const std::string& what,
                        const std::string& part) {
  if (digits.size() != 8 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail_damaged(what, fmt::format("{} is '{:.40}'", part, digits));
  return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
}

std::string quoted(const std::string& text, const std::string& what) {
  try {
    return Json(text).dump({.strict = true});
  } catch (const JsonError& e) {
    fail<InvalidArgumentError>("[save] '{}': a name or metadata is not UTF-8 ({})", what, e.what());
  }
}

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

// Metadata key of the CRC-32 of header and data, in eight hexadecimal digits. Computed with
// these digits as zeros.
constexpr const char* kChecksum = "tandem.crc32";
constexpr const char* kNoChecksum = "00000000";
constexpr std::size_t kAlignment = 8;
// The checksum counts only if the header's JSON is padded by so much. Other programs copy the
// metadata of a file that they change, but pad the header to the alignment alone.
constexpr std::size_t kMark = 8;

std::string checksum_field(const std::string& digits) {
  return fmt::format("\"{}\":\"{}\"", kChecksum, digits);
}

class HeaderParser {
 public:
  HeaderParser(std::string text, std::uint64_t data_bytes, const std::string& what)
      : text_(std::move(text)), data_bytes_(data_bytes), what_(what) {}

  SafetensorsHeader parse() {
    const Json header = parse_object(text_, what_, "its header");
    SafetensorsHeader result;
    for (const auto& [name, value] : header.object()) {
      if (name == kMetadataEntry)
        parse_metadata(value, result);
      else
        result.entries.push_back(parse_entry(name, value));
    }
    check_order(result.entries);
    take_checksum(result);
    result.data_begin = sizeof(std::uint64_t) + text_.size();
    return result;
  }

 private:
  void check_order(std::vector<SafetensorsEntry>& entries) const {
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t end = 0;
    for (const SafetensorsEntry& entry : entries) {
      if (entry.begin != end)
        fail_damaged(what_, fmt::format("tensor '{}' starts at byte {} of the data, expected {}",
                                        entry.name, entry.begin, end));
      end = entry.end;
    }
    if (end != data_bytes_)
      fail_damaged(what_,
                   fmt::format("its tensors take {} bytes, but it has {}", end, data_bytes_));
  }

  void parse_metadata(const Json& value, SafetensorsHeader& result) const {
    if (!value.is_object()) fail_damaged(what_, "its metadata is not an object of strings");
    for (const auto& [key, string] : value.object())
      result.metadata.emplace(key, parse_string(string, what_, fmt::format("metadata '{}'", key)));
  }

  SafetensorsEntry parse_entry(const std::string& name, const Json& value) const {
    const std::string part = fmt::format("tensor '{}'", name);
    const std::string dtype = parse_string(member(value, "dtype", what_, part), what_,
                                           fmt::format("the dtype of {}", part));
    const std::optional<DType> known = dtype_named(dtype);
    SafetensorsEntry entry{.name = name,
                           .dtype = known.value_or(uint8),
                           .foreign = known ? "" : dtype,
                           .shape = parse_shape(member(value, "shape", what_, part), what_, part)};
    const Json& offsets = member(value, "data_offsets", what_, part);
    if (!offsets.is_array() || offsets.array().size() != 2 || !offsets.array()[0].is_count() ||
        !offsets.array()[1].is_count())
      fail_damaged(what_, fmt::format("the offsets of tensor '{}' are not two numbers", name));
    entry.begin = offsets.array()[0].count();
    entry.end = offsets.array()[1].count();
    const auto elements = static_cast<std::uint64_t>(entry.shape.num_elements());
    if (entry.end < entry.begin || entry.end > data_bytes_ ||
        (known &&
         (elements > data_bytes_ || entry.end - entry.begin != elements * size_of(entry.dtype))))
      fail_damaged(what_, fmt::format("tensor '{}' of {} elements has the offsets [{}, {}] of {}",
                                      name, elements, entry.begin, entry.end, data_bytes_));
    return entry;
  }

  void take_checksum(SafetensorsHeader& result) {
    const auto found = result.metadata.find(kChecksum);
    if (found != result.metadata.end()) {
      if (text_.size() - text_.rfind('}') > kMark)
        result.checksum = parse_crc(found->second, what_, "its checksum");
      const std::size_t at = text_.find(checksum_field(found->second));
      const std::string neutral = checksum_field(kNoChecksum);
      if (at != std::string::npos) text_.replace(at, neutral.size(), neutral);
      result.metadata.erase(found);
    }
    result.header_crc = crc_of(0, text_.data(), text_.size());
  }

  std::string text_;
  const std::uint64_t data_bytes_;
  const std::string& what_;
};

}  // namespace

SafetensorsHeader read_safetensors_header(const ReadBytes& read, std::uint64_t size,
                                          const std::string& what) {
  const auto read_bytes = [&](void* to, std::size_t bytes, const char* part) {
    if (read(to, bytes) != bytes) fail_damaged(what, fmt::format("it ends within {}", part));
  };
  std::uint64_t length = 0;
  if (size < sizeof(length))
    fail_damaged(what, fmt::format("expected at least {} bytes, got {}", sizeof(length), size));
  read_bytes(&length, sizeof(length), "the header's size");
  if (length > kMaxHeaderBytes || length > size - sizeof(length))
    fail_damaged(what, fmt::format("it claims a header of {} bytes, but has {}", length,
                                   size - sizeof(length)));
  std::string text(static_cast<std::size_t>(length), '\0');
  read_bytes(text.data(), text.size(), "the header");
  return HeaderParser(std::move(text), size - sizeof(length) - length, what).parse();
}

void require_booleans(DType dtype, const void* data, std::size_t bytes, const std::string& what,
                      const std::string& name) {
  if (dtype != bool_) return;
  const auto* begin = static_cast<const std::byte*>(data);
  if (std::any_of(begin, begin + bytes, [](std::byte value) { return value > std::byte{1}; }))
    fail_damaged(what, fmt::format("tensor '{}' has booleans that are neither 0 nor 1", name));
}

std::uint32_t crc_of(std::uint32_t so_far, const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(crc32_z(so_far, static_cast<const Bytef*>(data), bytes));
}

HeaderText make_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                   const std::map<std::string, std::string>& metadata,
                                   const std::string& what) {
  HeaderText header{.text = fmt::format("{{\"{}\":{{", kMetadataEntry)};
  for (const auto& [key, value] : metadata)
    if (key != kChecksum)
      header.text += fmt::format("{}:{},", quoted(key, what), quoted(value, what));
  header.checksum_at = header.text.size() + checksum_field("").size() - 1;
  header.text += checksum_field(kNoChecksum) + "}";
  for (const SafetensorsEntry& entry : entries) {
    const Json description = {
        {"data_offsets", Json::Array{entry.begin, entry.end}},
        {"dtype", format_name(entry.dtype)},
        {"shape", Json::Array(entry.shape.words().begin(), entry.shape.words().end())}};
    header.text += fmt::format(",{}:{}", quoted(entry.name, what), description.dump());
  }
  header.text += "}";
  const std::size_t size = header.text.size() + kMark;
  header.text.resize((size + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return header;
}

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
        {.name = name, .dtype = tensor.dtype(), .shape = tensor.shape(), .value = [kept = tensor] {
           return kept;
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
  const Scoped tag(memory_tag, MemoryTag::kOther);
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
