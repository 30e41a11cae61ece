#include "train/checkpoint/index.h"

#include <algorithm>

#include "core/json.h"
#include "train/checkpoint/file_errors.h"
#include "train/checkpoint/header_json.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/tensor_range.h"

namespace tandem {
namespace {

constexpr const char* kFormat = "tandem.checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr const char* kChecksumEntry = "\"checksum\":\"";
constexpr const char* kNoChecksumYet = "00000000";
constexpr std::size_t kDigits = 8;
constexpr std::size_t kMaxFiles = 1 << 16;

std::uint64_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::uint64_t>(shape.num_elements()) * size_of(dtype);
}

std::vector<std::int64_t> list_of(std::span<const std::int64_t> sizes) {
  return {sizes.begin(), sizes.end()};
}

// The CRC-32 of the JSON with zeros in place of the checksum at `at`.
std::uint32_t text_crc(std::string text, std::size_t at) {
  text.replace(at, kDigits, kNoChecksumYet);
  return crc_of(0, text.data(), text.size());
}

Json description_of(const CheckpointTensor& tensor) {
  Json::Array slices;
  for (const CheckpointSlice& slice : tensor.slices) {
    Json::Array crcs;
    for (const std::uint32_t crc : slice.chunk_crcs) crcs.push_back(fmt::format("{:08x}", crc));
    slices.push_back({{"begin", slice.begin},
                      {"crc32", std::move(crcs)},
                      {"file", slice.file},
                      {"offset", list_of(slice.range.offset.span())},
                      {"shape", list_of(slice.range.shape.dims().span())}});
  }
  return {{"dtype", format_name(tensor.dtype)},
          {"shape", list_of(tensor.shape.dims().span())},
          {"slices", std::move(slices)}};
}

// A file beside the index: the names of an index from elsewhere lead to no other directory.
std::string parse_name(const Json& value, const std::string& what) {
  std::string name = parse_string(value, what, "the name of a file");
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    fail_damaged(what, fmt::format("it names the file '{:.200}', expected a name without "
                                   "directories",
                                   name));
  return name;
}

std::map<std::string, std::string> parse_strings(const Json& value, const std::string& what) {
  if (!value.is_object()) fail_damaged(what, "its metadata is not an object of strings");
  std::map<std::string, std::string> strings;
  for (const auto& [key, string] : value.object())
    strings.emplace(key, parse_string(string, what, fmt::format("metadata '{}'", key)));
  return strings;
}

class IndexParser {
 public:
  IndexParser(const std::string& text, const std::string& what) : text_(text), what_(what) {}

  CheckpointIndex parse() {
    const Json root = parse_object(text_, what_, "the index");
    check_format(root);
    index_.metadata = parse_strings(member(root, "metadata", what_, "the index"), what_);
    parse_files(member(root, "files", what_, "the index"));
    const Json& tensors = member(root, "tensors", what_, "the index");
    if (!tensors.is_object()) fail_damaged(what_, "its tensors are not an object");
    for (const auto& [name, value] : tensors.object())
      index_.tensors.emplace(name, parse_tensor(value, fmt::format("tensor '{}'", name)));
    return std::move(index_);
  }

 private:
  void check_format(const Json& root) const {
    const std::string format =
        parse_string(member(root, "format", what_, "the index"), what_, "the format");
    if (format != kFormat)
      fail_damaged(what_, fmt::format("its format is '{:.40}', expected '{}'", format, kFormat));
    const std::uint64_t version =
        parse_count(member(root, "version", what_, "the index"), what_, "the version");
    if (version != kVersion)
      fail<InvalidArgumentError>("[load] '{}' is an index of version {}, expected {}", what_,
                                 version, kVersion);
    const std::string digits =
        parse_string(member(root, "checksum", what_, "the index"), what_, "the checksum");
    const std::uint32_t expected = parse_crc(digits, what_, "the checksum of the index");
    const std::size_t at = text_.find(kChecksumEntry + digits + '"');
    const std::uint32_t actual =
        at == std::string::npos ? ~expected
                                : text_crc(text_, at + std::string_view(kChecksumEntry).size());
    if (actual != expected)
      fail_damaged(what_, fmt::format("the checksum of the index is {:08x}, expected {:08x}",
                                      actual, expected));
  }

  void parse_files(const Json& files) {
    if (!files.is_array()) fail_damaged(what_, "its files are not a list");
    if (files.array().size() > kMaxFiles)
      fail_damaged(what_, fmt::format("it has {} files, expected at most {}", files.array().size(),
                                      kMaxFiles));
    for (const Json& file : files.array())
      index_.files.push_back(
          {.path = parse_name(member(file, "name", what_, "a file"), what_),
           .bytes = parse_count(member(file, "bytes", what_, "a file"), what_, "a file's size")});
  }

  CheckpointTensor parse_tensor(const Json& value, const std::string& part) const {
    CheckpointTensor tensor{.dtype = parse_dtype(member(value, "dtype", what_, part), what_, part),
                            .shape = parse_shape(member(value, "shape", what_, part), what_, part)};
    const Json& slices = member(value, "slices", what_, part);
    if (!slices.is_array()) fail_damaged(what_, fmt::format("the slices of {} are no list", part));
    for (const Json& slice : slices.array())
      tensor.slices.push_back(parse_slice(slice, tensor, part));
    return tensor;
  }

  CheckpointSlice parse_slice(const Json& value, const CheckpointTensor& tensor,
                              const std::string& part) const {
    const Shape offset = parse_shape(member(value, "offset", what_, part), what_, part);
    CheckpointSlice slice{
        .range = {.offset = offset.dims(),
                  .shape = parse_shape(member(value, "shape", what_, part), what_, part)},
        .file = parse_count(member(value, "file", what_, part), what_, part),
        .begin = parse_count(member(value, "begin", what_, part), what_, part)};
    if (!within(slice.range, tensor.shape))
      fail_damaged(what_, fmt::format("{} of shape {} has a slice {}", part,
                                      tensor.shape.to_string(), text_of(slice.range)));
    const std::uint64_t bytes = bytes_of(slice.range.shape, tensor.dtype);
    if (slice.file >= index_.files.size())
      fail_damaged(what_,
                   fmt::format("{} is in file {} of {}", part, slice.file, index_.files.size()));
    const CheckpointFile& file = index_.files[slice.file];
    if (bytes > file.bytes || slice.begin > file.bytes - bytes)
      fail_damaged(what_, fmt::format("{} has {} bytes from byte {} of '{}', which has {}", part,
                                      bytes, slice.begin, file.path.string(), file.bytes));
    const Json& crcs = member(value, "crc32", what_, part);
    if (!crcs.is_array() || crcs.array().size() != (bytes + kChunkBytes - 1) / kChunkBytes)
      fail_damaged(what_, fmt::format("{} has a slice of {} bytes with checksums for another size",
                                      part, bytes));
    for (const Json& crc : crcs.array())
      slice.chunk_crcs.push_back(
          parse_crc(parse_string(crc, what_, part), what_, fmt::format("a checksum of {}", part)));
    return slice;
  }

  const std::string& text_;
  const std::string& what_;
  CheckpointIndex index_;
};

}  // namespace

std::string index_text(const CheckpointIndex& index, const std::string& what) {
  std::string text =
      fmt::format("{{\"format\":\"{}\",\"version\":{},{}", kFormat, kVersion, kChecksumEntry);
  const std::size_t checksum_at = text.size();
  text += fmt::format("{}\",\n\"metadata\":{{", kNoChecksumYet);
  const char* separator = "";
  for (const auto& [key, value] : index.metadata) {
    text += fmt::format("{}\n{}:{}", separator, quoted(key, what), quoted(value, what));
    separator = ",";
  }
  text += "},\n\"files\":[";
  separator = "";
  for (const CheckpointFile& file : index.files) {
    text += fmt::format("{}\n{{\"name\":{},\"bytes\":{}}}", separator,
                        quoted(file.path.string(), what), file.bytes);
    separator = ",";
  }
  text += "],\n\"tensors\":{";
  separator = "";
  for (const auto& [name, tensor] : index.tensors) {
    text += fmt::format("{}\n{}:{}", separator, quoted(name, what), description_of(tensor).dump());
    separator = ",";
  }
  text += "}}\n";
  return text.replace(checksum_at, kDigits, fmt::format("{:08x}", text_crc(text, checksum_at)));
}

CheckpointIndex parse_index(const std::string& text, const std::string& what, bool complete) {
  CheckpointIndex index = IndexParser(text, what).parse();
  if (!complete) return index;
  if (const auto problem = find_incomplete(index)) fail_damaged(what, *problem);
  return index;
}

bool is_weight_map(const std::string& text) {
  return text.find("\"weight_map\"") != std::string::npos &&
         text.find(fmt::format("\"{}\"", kFormat)) == std::string::npos;
}

WeightMap parse_weight_map(const std::string& text, const std::string& what) {
  const Json root = parse_object(text, what, "the index");
  WeightMap map;
  if (const Json* metadata = root.find("metadata")) {
    if (!metadata->is_object()) fail_damaged(what, "its metadata is not an object");
    for (const auto& [key, value] : metadata->object())  // numbers, too
      map.metadata.emplace(key, value.is_string() ? value.text() : value.dump());
  }
  const Json& weights = member(root, "weight_map", what, "the index");
  if (!weights.is_object()) fail_damaged(what, "its weight_map is not an object");
  for (const auto& [name, file] : weights.object()) map.files.emplace(name, parse_name(file, what));
  return map;
}

CheckpointIndex merge(const std::vector<CheckpointIndex>& parts, const std::string& what) {
  CheckpointIndex all;
  for (const CheckpointIndex& part : parts) {
    const std::size_t first_file = all.files.size();
    all.files.insert(all.files.end(), part.files.begin(), part.files.end());
    all.metadata.insert(part.metadata.begin(), part.metadata.end());
    for (const auto& [name, tensor] : part.tensors) {
      CheckpointTensor& target =
          all.tensors.emplace(name, CheckpointTensor{.dtype = tensor.dtype, .shape = tensor.shape})
              .first->second;
      if (target.dtype != tensor.dtype || !(target.shape == tensor.shape))
        fail<InvalidArgumentError>("[save] '{}': '{}' is {} {} in one process and {} {} in another",
                                   what, name, name_of(target.dtype), target.shape.to_string(),
                                   name_of(tensor.dtype), tensor.shape.to_string());
      for (CheckpointSlice slice : tensor.slices) {
        slice.file += first_file;
        target.slices.push_back(std::move(slice));
      }
    }
  }
  return all;
}

std::optional<std::string> find_incomplete(const CheckpointIndex& index) {
  for (const auto& [name, tensor] : index.tensors) {
    std::vector<TensorRange> ranges;
    for (const CheckpointSlice& slice : tensor.slices) ranges.push_back(slice.range);
    if (const auto gap = find_gap(ranges, tensor.shape))
      return fmt::format("tensor '{}' {}", name, *gap);
  }
  return std::nullopt;
}

}  // namespace tandem
