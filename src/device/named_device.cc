// The public name of a device.
#include <algorithm>
#include <array>
#include <cctype>
#include <ostream>

#include "core/status.h"
#include "device/device_name.h"
#include "tandem/device.h"

namespace tandem {
namespace {

struct TypeName {
  std::string_view name, lower;
  DeviceType type;
};
constexpr std::array<TypeName, 4> kTypeNames = {{{"CPU", "cpu", DeviceType::kCpu},
                                                 {"GPU", "gpu", DeviceType::kGpu},
                                                 {"CUDA", "cuda", DeviceType::kGpu},
                                                 {"TPU", "tpu", DeviceType::kTpu}}};

bool equal_in_lower_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](unsigned char a, char b) { return std::tolower(a) == b; });
}

// The name for DeviceName::parse(): a type alone is its first device, and "cuda" is "gpu".
std::string with_known_type(std::string_view name) {
  const std::string_view type = name.substr(0, name.find(':'));
  for (const TypeName& known : kTypeNames)
    if (equal_in_lower_case(type, known.lower))
      return fmt::format("{}{}", known.type == DeviceType::kGpu ? "GPU" : known.name,
                         type.size() == name.size() ? ":0" : name.substr(type.size()));
  return std::string(name);
}

std::string_view lower_name_of(DeviceType type) {
  for (const TypeName& known : kTypeNames)
    if (known.type == type) return known.lower;
  fail<InvalidArgumentError>("[Device] expected a device type, got {}", static_cast<int>(type));
}

}  // namespace

Device::Device(std::string_view name, Parsed) {
  DeviceName parsed = DeviceName::parse(with_known_type(name));
  if (!parsed.type || !parsed.id)
    fail<InvalidArgumentError>(
        "[Device] expected a name with a type and a number, such as 'GPU:0', got '{}'", name);
  for (const TypeName& known : kTypeNames)
    if (known.name == *parsed.type) type_ = known.type;
  index_ = *parsed.id;
  parsed.type.reset();
  parsed.id.reset();
  const std::string place = parsed.to_string();
  const bool here =
      place.empty() || place == "/job:localhost" || place == "/job:localhost/replica:0/task:0";
  name_ = fmt::format("{}/{}:{}", here ? "" : place, lower_name_of(type_), index_);
}

Device::Device(DeviceType type, int index) : type_(type), index_(index) {
  if (index < 0) fail<InvalidArgumentError>("[Device] expected an index from 0, got {}", index);
  name_ = fmt::format("/{}:{}", lower_name_of(type), index);
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.name(); }

}  // namespace tandem
