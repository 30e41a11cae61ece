#include "tandem/config.h"

#include <ostream>

#include "core/status.h"
#include "device/busy_share.h"
#include "device/device_manager.h"
#include "device/discovery.h"
#include "device/idle_memory.h"

namespace tandem::config {
namespace {

DeviceManager& manager() { return DeviceManager::get(); }

DeviceImpl& device_named(std::string_view name, const char* by) {
  const DeviceName wanted = nest(manager().devices(by).front()->name(), DeviceName::parse(name));
  if (DeviceImpl* device = manager().find(wanted)) return *device;
  fail<InvalidArgumentError>("[{}] expected one of {}, got '{}'", by, manager().describe_devices(),
                             name);
}

MemoryByTag by_tag(const BytesByTag& bytes) {
  const auto of = [&](MemoryTag tag) { return bytes[static_cast<std::size_t>(tag)]; };
  return {.weights = of(MemoryTag::kWeights),
          .activations = of(MemoryTag::kActivations),
          .gradients = of(MemoryTag::kGradients),
          .optimizer = of(MemoryTag::kOptimizer),
          .workspace = of(MemoryTag::kWorkspace),
          .other = of(MemoryTag::kOther)};
}

// A device after its deferred work is done, so that memory held by the work is free.
DeviceImpl& settled_device(std::string_view name, const char* by) {
  DeviceImpl& device = device_named(name, by);
  device.stream().synchronize();
  return device;
}

}  // namespace

std::vector<PhysicalDevice> list_physical_devices(std::string_view device_type) {
  return manager().physical_devices(device_type);
}

std::ostream& operator<<(std::ostream& out, const PhysicalDevice& device) {
  return out << device.name;
}

std::ostream& operator<<(std::ostream& out, const LogicalDevice& device) {
  return out << device.name;
}

std::vector<LogicalDevice> list_logical_devices(std::string_view device_type) {
  std::vector<LogicalDevice> result;
  const bool cpus_visible = !manager().visible_devices("CPU").empty();
  for (const DeviceImpl* device : manager().devices("list_logical_devices")) {
    const std::string& type = *device->name().type;
    if (!device_type.empty() && device_type != type) continue;
    if (device->type() == DeviceType::kCpu && !cpus_visible) continue;
    result.push_back({device->full_name(), type});
  }
  return result;
}

DeviceDetails get_device_details(const PhysicalDevice& device) { return manager().details(device); }

void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view device_type) {
  manager().set_visible_devices(devices, device_type);
}

std::vector<PhysicalDevice> get_visible_devices(std::string_view device_type) {
  return manager().visible_devices(device_type);
}

void set_memory_growth(const PhysicalDevice& device, bool enable) {
  manager().set_memory_growth(device, enable);
}

bool get_memory_growth(const PhysicalDevice& device) { return manager().memory_growth(device); }

void set_per_process_gpu_memory_fraction(double fraction) {
  manager().set_memory_fraction(fraction);
}

void set_gpu_options(const GPUOptions& options) { manager().set_gpu_options(options); }

void set_device_count(const std::map<std::string, int>& device_count) {
  manager().set_device_count(device_count);
}

void set_logical_device_configuration(
    const PhysicalDevice& device, const std::vector<LogicalDeviceConfiguration>& logical_devices) {
  manager().set_logical_devices(device, logical_devices);
}

void set_logical_cpus(int count) {
  if (count < 1 || count > kMaxDeviceCount)
    fail<InvalidArgumentError>("[set_logical_cpus] expected 1 to {} CPUs, got {}", kMaxDeviceCount,
                               count);
  manager().set_logical_devices(
      manager().physical_devices("CPU").front(),
      std::vector<LogicalDeviceConfiguration>(static_cast<std::size_t>(count)));
}

void set_emulated_gpus(int count, std::int64_t memory_mib) {
  manager().set_emulated_gpus(count, memory_mib);
}

void load_pjrt_plugin(const std::string& path, const std::map<std::string, PluginOption>& options) {
  manager().load_pjrt_plugin({.path = path, .options = options});
}

void load_pjrt_topology(const std::string& path, const std::string& topology) {
  if (topology.empty())
    fail<InvalidArgumentError>("[load_pjrt_topology] expected the name of a topology, got none");
  manager().load_pjrt_plugin({.path = path, .topology = topology});
}

void set_intra_op_parallelism_threads(int threads) { manager().set_intra_op_parallelism(threads); }

int get_intra_op_parallelism_threads() { return manager().intra_op_parallelism(); }

void set_inter_op_parallelism_threads(int threads) {
  if (threads < 0)
    fail<InvalidArgumentError>(
        "[set_inter_op_parallelism_threads] expected at least 0 threads, got {}", threads);
}

MemoryInfo get_memory_info(std::string_view device) {
  const AllocatorStats stats = settled_device(device, "get_memory_info").allocator().stats();
  return {.current = stats.bytes_in_use,
          .peak = stats.peak_bytes_in_use,
          .limit = stats.bytes_limit,
          .reserved = stats.bytes_reserved,
          .largest_free_block = stats.largest_free_block,
          .fragmentation = stats.fragmentation(),
          .by_tag = by_tag(stats.bytes_by_tag),
          .peak_by_tag = by_tag(stats.peak_by_tag)};
}

void reset_memory_stats(std::string_view device) {
  DeviceImpl& settled = settled_device(device, "reset_memory_stats");
  settled.allocator().reset_peak();
  reset_busy_share(settled);
}

std::int64_t trim_memory(std::string_view device) {
  DeviceImpl& settled = settled_device(device, "trim_memory");
  release_idle_memory(settled);
  return static_cast<std::int64_t>(settled.allocator().trim());
}

}  // namespace tandem::config
