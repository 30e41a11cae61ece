#include "core/env.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "core/status.h"

namespace tandem {

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> env_int(const char* name, std::int64_t minimum, std::int64_t maximum) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < minimum || value > maximum)
    fail<InvalidArgumentError>("[Environment] {}: expected an integer in [{}, {}], got '{}'", name,
                               minimum, maximum, *text);
  return value;
}

std::optional<bool> env_bool(const char* name) {
  const std::optional<std::string> text = env_string(name);
  if (!text) return std::nullopt;
  std::string lower = *text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<const char*, 4> kTrue = {"true", "yes", "on", "1"};
  constexpr std::array<const char*, 4> kFalse = {"false", "no", "off", "0"};
  if (std::find(kTrue.begin(), kTrue.end(), lower) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), lower) != kFalse.end()) return false;
  fail<InvalidArgumentError>("[Environment] {}: expected true or false, got '{}'", name, *text);
}

}  // namespace tandem
