#include "train/checkpoint/header_json.h"

#include <algorithm>
#include <array>

#include "train/checkpoint/file_errors.h"

namespace tandem {
namespace {

constexpr std::array<std::pair<DType, const char*>, 8> kDTypeNames = {{{float32, "F32"},
                                                                       {float64, "F64"},
                                                                       {float16, "F16"},
                                                                       {bfloat16, "BF16"},
                                                                       {int32, "I32"},
                                                                       {int64, "I64"},
                                                                       {uint8, "U8"},
                                                                       {bool_, "BOOL"}}};

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
      "[load] '{}': {} has dtype '{}', expected one of F32, F64, F16, BF16, I32, I64, U8, BOOL",
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

}  // namespace tandem
