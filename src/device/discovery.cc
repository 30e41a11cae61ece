#include "device/discovery.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "core/env.h"
#include "core/status.h"

namespace tandem {
namespace {

template <class T>
std::optional<T> whole_number(std::string_view text, T minimum, T maximum) {
  T value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < minimum ||
      value > maximum)
    return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

const PhysicalGpus& real_gpus() {
  static const PhysicalGpus* const found = new PhysicalGpus(discover_cuda());
  return *found;
}

}  // namespace

std::optional<EmulatedGpuRequest> emulated_gpus_from_environment() {
  const std::optional<std::string> text = env_string("TANDEM_EMULATED_GPUS");
  if (!text) return std::nullopt;
  EmulatedGpuRequest request;
  const std::size_t colon = text->find(':');
  const std::string_view all = *text;
  const auto count = whole_number(all.substr(0, colon), 0, kMaxDeviceCount);
  const auto memory = colon == std::string::npos
                          ? std::optional(request.memory_mib)
                          : whole_number(all.substr(colon + 1), std::int64_t{1}, kMaxEmulatedMib);
  if (!count || !memory)
    fail<InvalidArgumentError>(
        "[Environment] TANDEM_EMULATED_GPUS: expected N or N:MiB, with N from 0 to {}, got '{}'",
        kMaxDeviceCount, *text);
  request.count = *count;
  request.memory_mib = *memory;
  return request;
}

int visible_count(std::string_view text, int count) {
  std::set<int> seen;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const auto index = whole_number(trimmed(text.substr(0, comma)), 0, count - 1);
    if (!index) break;
    if (!seen.insert(*index).second) return 0;
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return static_cast<int>(seen.size());
}

std::vector<int> parse_device_list(std::string_view text, int count) {
  std::vector<int> result;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = trimmed(rest.substr(0, comma));
    const auto index = whole_number(entry, 0, count - 1);
    if (!index)
      fail<InvalidArgumentError>(
          "Invalid visible device index: {} (visible_device_list is '{}', there are {} GPUs)",
          entry, text, count);
    if (std::find(result.begin(), result.end(), *index) != result.end())
      fail<InvalidArgumentError>("visible_device_list contained a duplicate entry: {}", text);
    result.push_back(*index);
    if (comma == std::string_view::npos) return result;
    rest = rest.substr(comma + 1);
  }
}

PhysicalGpus discover_gpus(const std::optional<EmulatedGpuRequest>& request) {
  if (!real_gpus().empty()) return real_gpus();
  const EmulatedGpuRequest wanted =
      request ? *request : emulated_gpus_from_environment().value_or(EmulatedGpuRequest());
  // As in CUDA, an empty value hides every GPU; Tandem's own variables ignore empty values.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return emulated_gpus(visible ? visible_count(visible, wanted.count) : wanted.count,
                       wanted.memory_mib);
}

config::PhysicalDevice physical_device(std::string_view type, int index) {
  return {fmt::format("/physical_device:{}:{}", type, index), std::string(type)};
}

DeviceName local_device_name(std::string_view type, int id) {
  return {.job = "localhost", .replica = 0, .task = 0, .type = std::string(type), .id = id};
}

}  // namespace tandem
