// Any environment variables and settings, in any order, result in logical devices within the memory
// of their GPUs, or in a typed error.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/status.h"
#include "device/device_settings.h"

namespace {

using namespace tandem;

// Reads values from the front of the input.
class Input {
 public:
  Input(const std::uint8_t* bytes, std::size_t size) : bytes_(bytes), size_(size) {}
  bool empty() const { return size_ == 0; }
  int byte() {
    if (empty()) return 0;
    --size_;
    return *bytes_++;
  }
  std::int64_t number() { return static_cast<std::int64_t>(byte()) * byte() - byte(); }
  // Up to the next zero byte.
  std::string text() {
    std::string result;
    for (int c = byte(); c != 0; c = byte()) result.push_back(static_cast<char>(c));
    return result;
  }

 private:
  const std::uint8_t* bytes_;
  std::size_t size_;
};

config::PhysicalDevice device(Input& input) {
  const int which = input.byte();
  return physical_device(which % 8 == 7 ? "CPU" : "GPU", which % 4);
}

void change(DeviceSettings& settings, Input& input) {
  switch (input.byte() % 8) {
    case 0: settings.set_emulated_gpus(static_cast<int>(input.number()), input.number()); break;
    case 1: {
      std::vector<config::PhysicalDevice> devices;
      for (int count = input.byte() % 4; count > 0; --count) devices.push_back(device(input));
      settings.set_visible(devices, input.byte() % 2 == 0 ? "GPU" : "");
      break;
    }
    case 2: settings.set_growth(device(input), input.byte() % 2 == 0); break;
    case 3: settings.set_fraction(static_cast<double>(input.number()) / 255.0); break;
    case 4: {
      const config::PhysicalDevice which = device(input);
      std::vector<config::LogicalDeviceConfiguration> configuration(
          static_cast<std::size_t>(input.byte() % 4));
      for (auto& each : configuration) {
        if (input.byte() % 8 != 0) each.memory_limit = input.number();
        if (input.byte() % 4 == 0) each.experimental_priority = input.byte() - 250;
      }
      settings.set_logical(which, configuration);
      break;
    }
    case 5: settings.set_gpu_options({.visible_device_list = input.text()}); break;
    case 6:
      settings.set_device_count({{input.byte() % 2 == 0 ? "CPU" : "GPU", input.byte() % 8 - 1}});
      break;
    default: settings.freeze("MatMul"); break;
  }
}

void check_logical_gpus(const DeviceSettings& settings) {
  const std::vector<DeviceSettings::LogicalGpu> gpus = settings.logical_gpus();
  std::map<const PhysicalGpu*, std::int64_t> taken;
  int id = 0;
  for (const DeviceSettings::LogicalGpu& each : gpus) {
    TANDEM_ASSERT(each.options.name == local_device_name("GPU", id++));
    TANDEM_ASSERT(each.options.memory_limit >= 0 && each.options.intra_op_threads >= 1);
    taken[each.gpu.get()] += each.options.memory_limit;
  }
  for (const auto& [gpu, bytes] : taken) TANDEM_ASSERT(bytes <= gpu->details().memory_bytes);
  TANDEM_ASSERT(settings.num_logical_cpus() >= 1);
}

template <class Call>
bool refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const InvalidArgumentError&) {
  } catch (const tandem::RuntimeError&) {
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  Input input(bytes, size);
  for (const char* name : {"TANDEM_EMULATED_GPUS", "CUDA_VISIBLE_DEVICES",
                           "TANDEM_FORCE_GPU_ALLOW_GROWTH", "TF_FORCE_GPU_ALLOW_GROWTH"})
    setenv(name, input.text().c_str(), 1);
  DeviceSettings settings;
  while (!input.empty()) {
    DeviceSettings changed = settings;
    if (!refused([&] { change(changed, input); })) settings = changed;
    refused([&] { check_logical_gpus(settings); });
  }
  return 0;
}
