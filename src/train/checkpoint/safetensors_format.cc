#include "train/checkpoint/safetensors_format.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/json.h"
#include "train/checkpoint/file_errors.h"
#include "train/checkpoint/header_json.h"

namespace tandem {
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
    const Json description = {{"data_offsets", Json::Array{entry.begin, entry.end}},
                              {"dtype", format_name(entry.dtype)},
                              {"shape", Json::Array(entry.shape.begin(), entry.shape.end())}};
    header.text += fmt::format(",{}:{}", quoted(entry.name, what), description.dump());
  }
  header.text += "}";
  const std::size_t size = header.text.size() + kMark;
  header.text.resize((size + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return header;
}

}  // namespace tandem
