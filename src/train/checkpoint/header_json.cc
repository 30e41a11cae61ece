#include "train/checkpoint/header_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "train/checkpoint/file_errors.h"

namespace tandem {
namespace {

using nlohmann::json;

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

json parse_object(const std::string& text, const std::string& what, const std::string& part) {
  // The JSON library accepts duplicate keys.
  std::vector<std::set<std::string>> keys;
  std::optional<std::string> doubled;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) doubled = key;
    }
    return true;
  };
  json value;
  try {
    value = json::parse(text, watch);
  } catch (const json::exception& e) {
    fail_damaged(what, fmt::format("{} is not JSON ({:.200})", part, e.what()));
  }
  if (!value.is_object()) fail_damaged(what, fmt::format("{} is not a JSON object", part));
  if (doubled) fail_damaged(what, fmt::format("{} has '{}' twice", part, *doubled));
  return value;
}

const json& member(const json& object, const char* key, const std::string& what,
                   const std::string& part) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end())
    fail_damaged(what, fmt::format("{} has no '{}'", part, key));
  return *found;
}

DType parse_dtype(const json& value, const std::string& what, const std::string& part) {
  const std::string name = parse_string(value, what, fmt::format("the dtype of {}", part));
  const auto known = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                  [&](const auto& candidate) { return candidate.second == name; });
  if (known == kDTypeNames.end())
    fail<InvalidArgumentError>(
        "[load] '{}': {} has dtype '{}', expected one of F32, F64, F16, BF16, I32, I64, U8, BOOL",
        what, part, name);
  return known->first;
}

Shape parse_shape(const json& value, const std::string& what, const std::string& part) {
  const auto is_size = [](const json& size) { return size.is_number_unsigned(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_size))
    fail_damaged(what, fmt::format("the shape of {} is not a list of sizes", part));
  if (value.size() > static_cast<std::size_t>(kMaxRank))
    fail<InvalidArgumentError>("[load] '{}': {} has {} axes, expected at most {}", what, part,
                               value.size(), kMaxRank);
  Dims sizes;
  std::int64_t elements = 1;
  for (const json& size : value) {
    const auto count = size.get<std::uint64_t>();
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

std::uint64_t parse_count(const json& value, const std::string& what, const std::string& part) {
  if (!value.is_number_unsigned()) fail_damaged(what, fmt::format("{} is not a number", part));
  return value.get<std::uint64_t>();
}

std::string parse_string(const json& value, const std::string& what, const std::string& part) {
  if (!value.is_string()) fail_damaged(what, fmt::format("{} is not a string", part));
  return value.get<std::string>();
}

std::uint32_t parse_crc(const std::string& digits, const std::string& what,
                        const std::string& part) {
  if (digits.size() != 8 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail_damaged(what, fmt::format("{} is '{:.40}'", part, digits));
  return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
}

std::string quoted(const std::string& text, const std::string& what) {
  try {
    return json(text).dump();
  } catch (const json::exception& e) {
    fail<InvalidArgumentError>("[save] '{}': a name or metadata is not UTF-8 ({})", what, e.what());
  }
}

}  // namespace tandem
