#include "train/safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "core/atomic_file.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

using json = nlohmann::ordered_json;

constexpr const char* kMetadata = "__metadata__";
// Metadata key of the CRC-32 of header and data, in eight hexadecimal digits. Computed with
// these digits as zeros.
constexpr const char* kChecksum = "tandem.crc32";
constexpr const char* kNoChecksum = "00000000";
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kAlignment = 8;

struct Entry {
  std::string name;
  DType dtype = float32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;
};

constexpr std::array<std::pair<DType, const char*>, 8> kDTypeNames = {{{float32, "F32"},
                                                                       {float64, "F64"},
                                                                       {float16, "F16"},
                                                                       {bfloat16, "BF16"},
                                                                       {int32, "I32"},
                                                                       {int64, "I64"},
                                                                       {uint8, "U8"},
                                                                       {bool_, "BOOL"}}};

const char* format_name(DType dtype) {
  return std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                      [&](const auto& known) { return known.first == dtype; })
      ->second;
}

std::uint32_t crc(std::uint32_t so_far, const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(crc32_z(so_far, static_cast<const Bytef*>(data), bytes));
}

std::string checksum_field(const std::string& digits) {
  return fmt::format("\"{}\":\"{}\"", kChecksum, digits);
}

// --- writing ---

// Tensors with larger elements first, so that all are aligned to their element size without
// padding.
std::vector<std::pair<std::string, Tensor>> in_file_order(
    const std::map<std::string, Tensor>& tensors) {
  std::vector<std::pair<std::string, Tensor>> ordered(tensors.begin(), tensors.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return size_of(a.second.dtype()) > size_of(b.second.dtype());
  });
  return ordered;
}

std::string make_header(const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  header[kMetadata] = metadata;
  header[kMetadata][kChecksum] = kNoChecksum;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = static_cast<std::uint64_t>(tensor.bytes());
    header[name] = {
        {"dtype", format_name(tensor.dtype())},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

// --- reading ---

class SafetensorsReader {
 public:
  SafetensorsReader(std::istream& in, std::uint64_t size, const std::string& what)
      : in_(in), size_(size), what_(what) {}

  TensorFile read() {
    const std::string header = read_header();
    data_bytes_ = size_ - sizeof(std::uint64_t) - header.size();
    const MemoryTagScope tag(MemoryTag::kOther);
    TensorFile file;
    const std::vector<Entry> entries = parse(header, file);
    const std::optional<std::uint32_t> expected = take_checksum(file);
    std::uint32_t actual = header_crc(header, expected);
    for (const Entry& entry : entries) {
      Tensor tensor = make_tensor(DeviceManager::get().host(), entry.shape, entry.dtype);
      std::byte* data = impl_of(tensor).data();
      const auto bytes = static_cast<std::size_t>(entry.end - entry.begin);
      if (bytes > 0) {
        read_bytes(data, bytes, entry.name);
        actual = crc(actual, data, bytes);
      }
      require_booleans(entry, data, bytes);
      file.tensors.emplace(entry.name, std::move(tensor));
    }
    if (expected && *expected != actual)
      damaged(fmt::format("the checksum is {:08x}, expected {:08x}", actual, *expected));
    return file;
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const {
    fail<DataLossError>("[load] '{}' is damaged: {}", what_, why);
  }

  void read_bytes(void* to, std::size_t bytes, const std::string& part) {
    in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (static_cast<std::size_t>(in_.gcount()) != bytes)
      damaged(fmt::format("it ends within {}", part));
  }

  std::string read_header() {
    std::uint64_t length = 0;
    if (size_ < sizeof(length))
      damaged(fmt::format("expected at least {} bytes, got {}", sizeof(length), size_));
    read_bytes(&length, sizeof(length), "the header's size");
    if (length > kMaxHeaderBytes || length > size_ - sizeof(length))
      damaged(fmt::format("it claims a header of {} bytes, but has {}", length,
                          size_ - sizeof(length)));
    std::string header(static_cast<std::size_t>(length), '\0');
    read_bytes(header.data(), header.size(), "the header");
    return header;
  }

  // Returns the tensors in the order of their data, and puts the metadata in `file`.
  std::vector<Entry> parse(const std::string& text, TensorFile& file) const {
    // Reports duplicate names, which the JSON library accepts.
    std::vector<std::map<std::string, int>> keys;
    std::string doubled;
    const auto watch = [&](int, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && keys.back()[parsed.get<std::string>()]++ > 0)
        doubled = parsed.get<std::string>();
      return true;
    };
    json header;
    try {
      header = json::parse(text, watch);
    } catch (const json::exception& e) {
      damaged(fmt::format("its header is not JSON ({:.200})", e.what()));
    }
    if (!header.is_object()) damaged("its header is not a JSON object");
    if (!doubled.empty()) damaged(fmt::format("its header has '{}' twice", doubled));

    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) {
        parse_metadata(value, file);
      } else {
        entries.push_back(parse_entry(name, value));
      }
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t end = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != end)
        damaged(fmt::format("tensor '{}' starts at byte {} of the data, expected {}", entry.name,
                            entry.begin, end));
      end = entry.end;
    }
    if (end != data_bytes_)
      damaged(fmt::format("its tensors take {} bytes, but it has {}", end, data_bytes_));
    return entries;
  }

  void parse_metadata(const json& value, TensorFile& file) const {
    if (!value.is_object()) damaged("its metadata is not an object of strings");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) damaged(fmt::format("metadata '{}' is not a string", key));
      file.metadata.emplace(key, text.get<std::string>());
    }
  }

  Entry parse_entry(const std::string& name, const json& value) const {
    Entry entry;
    entry.name = name;
    try {
      const auto dtype = value.at("dtype").get<std::string>();
      const auto known =
          std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                       [&](const auto& candidate) { return candidate.second == dtype; });
      if (known == kDTypeNames.end())
        fail<InvalidArgumentError>(
            "[load] '{}': tensor '{}' has dtype '{}', expected one of F32, F64, F16, BF16, I32, "
            "I64, U8, BOOL",
            what_, name, dtype);
      entry.dtype = known->first;
      entry.shape = parse_shape(name, value.at("shape"));
      const json& offsets = value.at("data_offsets");
      if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
          !offsets[1].is_number_unsigned())
        damaged(fmt::format("the offsets of tensor '{}' are not two numbers", name));
      entry.begin = offsets[0].get<std::uint64_t>();
      entry.end = offsets[1].get<std::uint64_t>();
    } catch (const json::exception& e) {
      damaged(fmt::format("the entry of tensor '{}' is malformed ({:.200})", name, e.what()));
    }
    if (entry.shape.too_large())
      damaged(fmt::format("tensor '{}' has shape {}", name, entry.shape.to_string()));
    const auto elements = static_cast<std::uint64_t>(entry.shape.num_elements());
    if (elements > data_bytes_ || entry.end < entry.begin || entry.end > data_bytes_ ||
        entry.end - entry.begin != elements * size_of(entry.dtype))
      damaged(fmt::format("tensor '{}' of {} elements has the offsets [{}, {}] of {}", name,
                          elements, entry.begin, entry.end, data_bytes_));
    return entry;
  }

  Shape parse_shape(const std::string& name, const json& value) const {
    const auto is_size = [](const json& size) { return size.is_number_unsigned(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_size))
      damaged(fmt::format("the shape of tensor '{}' is not a list of sizes", name));
    if (value.size() > static_cast<std::size_t>(kMaxRank))
      fail<InvalidArgumentError>("[load] '{}': tensor '{}' has {} axes, expected at most {}", what_,
                                 name, value.size(), kMaxRank);
    Dims sizes;
    std::int64_t elements = 1;
    for (const json& size : value) {
      const auto count = size.get<std::uint64_t>();
      if (count > INT64_MAX ||
          __builtin_mul_overflow(elements, std::max<std::uint64_t>(count, 1), &elements))
        damaged(fmt::format("tensor '{}' has more elements than can be counted", name));
      sizes.push_back(static_cast<std::int64_t>(count));
    }
    return Shape(sizes.span());
  }

  // Bytes other than 0 and 1 are undefined behaviour when read as bool.
  void require_booleans(const Entry& entry, const std::byte* data, std::size_t bytes) const {
    if (entry.dtype != bool_) return;
    if (std::any_of(data, data + bytes, [](std::byte value) { return value > std::byte{1}; }))
      damaged(fmt::format("tensor '{}' has booleans that are neither 0 nor 1", entry.name));
  }

  std::optional<std::uint32_t> take_checksum(TensorFile& file) const {
    const auto found = file.metadata.find(kChecksum);
    if (found == file.metadata.end()) return std::nullopt;  // written by another program
    const std::string digits = found->second;
    if (digits.size() != 8 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      damaged(fmt::format("its checksum is '{}'", digits));
    file.metadata.erase(found);
    return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
  }

  std::uint32_t header_crc(std::string header, std::optional<std::uint32_t> expected) const {
    if (expected) {
      const std::size_t at = header.find(checksum_field(fmt::format("{:08x}", *expected)));
      if (at != std::string::npos) {
        const std::string neutral = checksum_field(kNoChecksum);
        header.replace(at, neutral.size(), neutral);
      }
    }
    return crc(0, header.data(), header.size());
  }

  std::istream& in_;
  const std::uint64_t size_;
  const std::string& what_;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace

TensorFile read_safetensors(std::istream& in, std::uint64_t size, const std::string& what) {
  return SafetensorsReader(in, size, what).read();
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

namespace {

// `out`: has write(data, bytes) and overwrite(offset, data, bytes).
template <class Out>
void write_safetensors(Out& out, const TensorFile& file, const std::string& what) {
  for (const auto& [name, tensor] : file.tensors) {
    if (name == kMetadata)
      fail<InvalidArgumentError>("[save] '{}': a tensor cannot be named '{}'", what, name);
    if (!tensor.defined())
      fail<InvalidArgumentError>("[save] '{}': tensor '{}' is undefined", what, name);
  }
  const auto tensors = in_file_order(file.tensors);
  std::string header;
  try {
    header = make_header(tensors, file.metadata);
  } catch (const json::exception& e) {
    fail<InvalidArgumentError>("[save] '{}': a name or metadata is not UTF-8 ({})", what, e.what());
  }
  const auto length = static_cast<std::uint64_t>(header.size());
  std::uint32_t checksum = crc(0, header.data(), header.size());

  out.write(&length, sizeof(length));
  out.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor host = copy_to_device(tensor, DeviceManager::get().host());
    const TensorImpl& impl = impl_of(host);
    if (impl.bytes() == 0) continue;
    out.write(impl.data(), impl.bytes());
    checksum = crc(checksum, impl.data(), impl.bytes());
  }
  const std::size_t field = header.find(checksum_field(kNoChecksum));
  const std::string digits = fmt::format("{:08x}", checksum);
  out.overwrite(sizeof(length) + field + checksum_field("").size() - 1, digits.data(),
                digits.size());
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

TensorFile parse_safetensors(const std::string& bytes, const std::string& what) {
  std::istringstream in(bytes);
  return read_safetensors(in, bytes.size(), what);
}

std::string safetensors_bytes(const TensorFile& file, const std::string& what) {
  MemoryFile out;
  write_safetensors(out, file, what);
  return out.take();
}

void save_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  AtomicFile out(path);
  write_safetensors(out, file, path.string());
  out.commit();
}

}  // namespace tandem
