#include "train/checkpoint/index.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/json.h"
#include "core/status.h"
#include "train/checkpoint/safetensors.h"

namespace tandem {

std::vector<std::pair<std::int64_t, std::filesystem::path>> numbered_files(
    const std::filesystem::path& directory, const std::string& name) {
  constexpr std::string_view kSuffix = ".safetensors";
  const std::string prefix = name + "-";
  std::vector<std::pair<std::int64_t, std::filesystem::path>> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(prefix) || !file.ends_with(kSuffix)) continue;
    std::int64_t number = 0;
    const char* const end = file.data() + file.size() - kSuffix.size();
    const auto [stop, error] = std::from_chars(file.data() + prefix.size(), end, number);
    if (error == std::errc() && stop == end && number >= 0)
      found.emplace_back(number, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace {

// More slices than any job has ranks. It limits the time that find_gap() takes.
constexpr std::size_t kMaxSlices = 1 << 14;

// The number of the element at `index` of a tensor in a range that is stored row by row.
std::int64_t position(const Dims& index, const TensorRange& in) {
  std::int64_t at = 0;
  for (int axis = 0; axis < index.size(); ++axis)
    at = at * in.shape.word(axis) + (index[axis] - in.offset[axis]);
  return at;
}

}  // namespace

TensorRange whole(const Shape& shape) {
  TensorRange range{.shape = shape};
  for (int axis = 0; axis < shape.rank(); ++axis) range.offset.push_back(0);
  return range;
}

TensorRange rows_of(const Shape& shape, std::int64_t begin, std::int64_t end) {
  TensorRange range = whole(shape);
  range.offset[0] = begin;
  range.shape.set(0, end - begin);
  return range;
}

std::vector<TensorRange> divide(const Shape& shape, int shards) {
  if (shape.rank() == 0 || shape.word(0) == 0) return {whole(shape)};
  const std::int64_t count = std::min<std::int64_t>(shards, shape.word(0));
  std::vector<TensorRange> ranges;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + shape.word(0) / count + (i < shape.word(0) % count ? 1 : 0);
    ranges.push_back(rows_of(shape, begin, end));
    begin = end;
  }
  return ranges;
}

bool within(const TensorRange& range, const Shape& shape) {
  if (range.offset.size() != shape.rank() || range.shape.rank() != shape.rank()) return false;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (range.offset[axis] < 0 || range.shape.word(axis) < 0 ||
        range.shape.word(axis) > shape.word(axis) ||
        range.offset[axis] > shape.word(axis) - range.shape.word(axis))
      return false;
  return true;
}

std::optional<TensorRange> intersect(const TensorRange& a, const TensorRange& b) {
  TensorRange common = a;
  for (int axis = 0; axis < a.shape.rank(); ++axis) {
    const std::int64_t begin = std::max(a.offset[axis], b.offset[axis]);
    const std::int64_t end =
        std::min(a.offset[axis] + a.shape.word(axis), b.offset[axis] + b.shape.word(axis));
    if (begin >= end) return std::nullopt;
    common.offset[axis] = begin;
    common.shape.set(axis, end - begin);
  }
  return common;
}

void for_each_run(const TensorRange& range, const TensorRange& from, const TensorRange& to,
                  const VisitRun& visit) {
  // Elements are contiguous along `axis` and the axes after it, if the ranges have all of those.
  int axis = std::max(range.shape.rank() - 1, 0);
  while (axis > 0 && range.shape.word(axis) == from.shape.word(axis) &&
         range.shape.word(axis) == to.shape.word(axis))
    --axis;
  std::int64_t count = 1, runs = 1;
  for (int i = 0; i < range.shape.rank(); ++i) (i < axis ? runs : count) *= range.shape.word(i);
  if (count == 0) return;
  Dims index = range.offset;
  for (std::int64_t run = 0; run < runs; ++run) {
    visit(position(index, from), position(index, to), count);
    for (int i = axis - 1; i >= 0 && ++index[i] == range.offset[i] + range.shape.word(i); --i)
      index[i] = range.offset[i];
  }
}

std::optional<std::string> find_gap(const std::vector<TensorRange>& slices, const Shape& shape) {
  if (slices.size() > kMaxSlices)
    return fmt::format("has {} slices, expected at most {}", slices.size(), kMaxSlices);
  std::int64_t covered = 0;
  std::vector<const TensorRange*> sorted;
  for (const TensorRange& slice : slices) {
    if (!within(slice, shape))
      return fmt::format("of shape {} has a slice {}", shape.to_string(), text_of(slice));
    const std::int64_t elements = slice.shape.num_elements();
    if (elements > 0) sorted.push_back(&slice);
    covered = std::min(covered + elements, 4 * kMaxElements);  // does not overflow
  }
  const auto first = [](const TensorRange& slice) { return slice.offset[0]; };
  std::sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) {
    return shape.rank() > 0 && first(*a) < first(*b);
  });
  for (std::size_t i = 0; i < sorted.size(); ++i)
    for (std::size_t k = i + 1; k < sorted.size(); ++k) {
      if (shape.rank() > 0 && first(*sorted[k]) >= first(*sorted[i]) + sorted[i]->shape.word(0))
        break;
      if (intersect(*sorted[i], *sorted[k]))
        return fmt::format("has the overlapping slices {} and {}", text_of(*sorted[i]),
                           text_of(*sorted[k]));
    }
  if (covered != shape.num_elements())
    return fmt::format("has slices of {} elements, expected {}", covered, shape.num_elements());
  return std::nullopt;
}

std::string text_of(const TensorRange& range) {
  std::string text = "[";
  for (int axis = 0; axis < range.shape.rank(); ++axis)
    text += fmt::format("{}{}:{}", axis == 0 ? "" : ", ", range.offset[axis],
                        range.offset[axis] + range.shape.word(axis));
  return text + "]";
}

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
                      {"shape", list_of(slice.range.shape.words().span())}});
  }
  return {{"dtype", format_name(tensor.dtype)},
          {"shape", list_of(tensor.shape.words().span())},
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
        .range = {.offset = offset.words(),
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
