// Allocates memory of the first GPU as its options say. Prints the memory in use as JSON lines, and
// waits for a line of input after each, while scripts/gpu-check asks the driver.
//   --growth 1          allocates as needed          --fraction F       this share of the total
//   --limits 1024,2048  MiB of logical devices       --allocate MIB     size of a tensor on GPU:0
#include <tandem/tandem.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace td = tandem;

void report(const char* state) {
  std::int64_t reserved = 0, current = 0, limit = 0;
  for (const auto& gpu : td::config::list_logical_devices("GPU")) {
    const td::config::MemoryInfo info = td::config::get_memory_info(gpu.name);
    reserved += info.reserved;
    current += info.current;
    limit += info.limit;
  }
  std::printf("{\"state\": \"%s\", \"reserved\": %lld, \"current\": %lld, \"limit\": %lld}\n",
              state, static_cast<long long>(reserved), static_cast<long long>(current),
              static_cast<long long>(limit));
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
}

}  // namespace

int main(int argc, char** argv) {
  const auto gpus = td::config::list_physical_devices("GPU");
  if (gpus.empty()) {
    std::fputs("memory_options: there is no GPU here\n", stderr);
    return 1;
  }
  td::config::set_visible_devices({gpus[0]}, "GPU");
  std::int64_t allocate = 64;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--growth") td::config::set_memory_growth(gpus[0], value == "1");
    if (key == "--fraction") td::config::set_per_process_gpu_memory_fraction(std::stod(value));
    if (key == "--allocate") allocate = std::stol(value);
    if (key == "--limits") {
      std::vector<td::config::LogicalDeviceConfiguration> devices;
      std::istringstream limits(value);
      for (std::string limit; std::getline(limits, limit, ',');)
        devices.push_back({.memory_limit = std::stol(limit)});
      td::config::set_logical_device_configuration(gpus[0], devices);
    }
  }
  for (const auto& gpu : td::config::list_logical_devices("GPU")) {
    const td::DeviceScope on(gpu.name);
    static_cast<void>(td::ones({1}).cpu());
  }
  report("started");
  {
    const td::Tensor held = td::ones({allocate, 1 << 18});  // MiB
    report("allocated");
  }
  for (const auto& gpu : td::config::list_logical_devices("GPU")) td::config::trim_memory(gpu.name);
  report("trimmed");
}
