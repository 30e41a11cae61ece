#include "strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>

#include "tandem/config.h"
#include "tandem/errors.h"
#include "tandem/tpu.h"

namespace tandem::tools {
namespace {

std::vector<std::string> devices_of(const StrategyChoice& choice) {
  std::vector<std::string> devices;
  std::istringstream names(choice.devices);
  for (std::string name; std::getline(names, name, ',');) devices.push_back(name);
  return devices;
}

// The index of a CPU device name such as "/cpu:1" or "/device:CPU:1"; none for other devices.
std::optional<int> cpu_index(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const std::size_t at = name.rfind("cpu:");
  if (at == std::string::npos) return std::nullopt;
  int index = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + at + 4, end, index);
  return parsed.ptr == end && parsed.ec == std::errc() ? std::optional(index) : std::nullopt;
}

void configure_cpus(const std::vector<std::string>& devices) {
  constexpr int kMaxCpus = 1024;
  int count = 1;
  for (const std::string& device : devices)
    if (const std::optional<int> index = cpu_index(device); index && *index < kMaxCpus)
      count = std::max(count, *index + 1);
  if (count > 1) config::set_logical_cpus(count);
}

}  // namespace

void check(const StrategyChoice& choice) {
  const auto reject = [&](const std::string& message) {
    throw InvalidArgumentError("[" + choice.command + "] " + message);
  };
  if (choice.strategy == "default" && !choice.devices.empty())
    reject(
        "--devices requires --strategy one_device, mirrored, central_storage, tpu or multi_worker");
  if (const std::size_t count = devices_of(choice).size();
      choice.strategy == "one_device" && count > 1)
    reject(fmt::format("expected one device for --strategy one_device, got {}", count));
}

distribute::Strategy make_strategy(const StrategyChoice& choice) {
  const std::vector<std::string> devices = devices_of(choice);
  configure_cpus(devices);
  if (choice.strategy == "default") return distribute::DefaultStrategy();
  if (choice.strategy == "one_device")
    return distribute::OneDeviceStrategy(choice.devices.empty() ? "/cpu:0" : choice.devices);
  if (choice.strategy == "mirrored") return distribute::MirroredStrategy({.devices = devices});
  if (choice.strategy == "central_storage")
    return distribute::CentralStorageStrategy({.compute_devices = devices});
  if (choice.strategy == "tpu") return distribute::TPUStrategy({.devices = devices});
  if (choice.strategy == "multi_worker")
    return distribute::MultiWorkerMirroredStrategy({.devices = devices});
  throw InvalidArgumentError("[" + choice.command +
                             "] expected --strategy default, one_device, mirrored, "
                             "central_storage, tpu or multi_worker, got '" +
                             choice.strategy + "'");
}

}  // namespace tandem::tools
