#include "device/device_manager.h"

#include <fmt/format.h>

#include <atomic>

#include "core/joined.h"
#include "core/mutex.h"
#include "device/cpu/cpu_device.h"
#include "device/device_settings.h"
#include "device/pjrt/pjrt_device.h"

namespace tandem {

struct DeviceManager::State {
  std::mutex mutex;  // guards the settings and initialisation
  const HeldAtFork held_at_fork{mutex};
  DeviceSettings settings;

  // Immutable once `initialized` is set, and then read without the lock.
  std::atomic<bool> initialized{false};
  std::vector<std::unique_ptr<DeviceImpl>> owned;
  std::vector<DeviceImpl*> devices;  // CPUs, then GPUs, then TPUs
  std::size_t num_cpus = 0, num_gpus = 0;
};

DeviceManager::DeviceManager() : state_(*new State) {}

DeviceManager& DeviceManager::get() {
  static DeviceManager* const instance = new DeviceManager;
  return *instance;
}

std::vector<config::PhysicalDevice> DeviceManager::physical_devices(std::string_view type) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.settings.physical(type);
}

config::DeviceDetails DeviceManager::details(const config::PhysicalDevice& device) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.settings.details(device);
}

void DeviceManager::set_visible_devices(std::span<const config::PhysicalDevice> devices,
                                        std::string_view type) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.set_visible(devices, type);
}

std::vector<config::PhysicalDevice> DeviceManager::visible_devices(std::string_view type) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.settings.visible(type);
}

void DeviceManager::set_memory_growth(const config::PhysicalDevice& device, bool enable) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.set_growth(device, enable);
}

bool DeviceManager::memory_growth(const config::PhysicalDevice& device) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.settings.growth(device);
}

void DeviceManager::set_memory_fraction(double fraction) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.set_fraction(fraction);
}

void DeviceManager::set_gpu_options(const config::GPUOptions& options) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  DeviceSettings changed = state_.settings;  // a copy, so that an error changes nothing
  changed.set_gpu_options(options);
  state_.settings = std::move(changed);
}

void DeviceManager::set_device_count(const std::map<std::string, int>& count) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  DeviceSettings changed = state_.settings;
  changed.set_device_count(count);
  state_.settings = std::move(changed);
}

void DeviceManager::set_logical_devices(
    const config::PhysicalDevice& device,
    std::span<const config::LogicalDeviceConfiguration> configuration) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.set_logical(device, configuration);
}

void DeviceManager::set_emulated_gpus(int count, std::int64_t memory_mib) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.set_emulated_gpus(count, memory_mib);
}

void DeviceManager::load_pjrt_plugin(const PluginRequest& request) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.load_plugin(request);
}

void DeviceManager::set_intra_op_parallelism(int threads) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.settings.set_intra_op(threads);
}

int DeviceManager::intra_op_parallelism() {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.settings.intra_op();
}

bool DeviceManager::initialized() const {
  return state_.initialized.load(std::memory_order_acquire);
}

void DeviceManager::initialize(std::string_view by) {
  if (initialized()) return;
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (initialized()) return;
  const std::vector<DeviceSettings::LogicalGpu> gpus = state_.settings.logical_gpus();
  const int cpus = state_.settings.num_logical_cpus();
  const int cpu_threads = state_.settings.threads_for(static_cast<std::size_t>(cpus));

  // An error leaves the runtime uninitialised.
  std::vector<std::unique_ptr<DeviceImpl>> made;
  for (int i = 0; i < cpus; ++i)
    made.push_back(std::make_unique<CpuDevice>(local_device_name("CPU", i), cpu_threads));
  for (const DeviceSettings::LogicalGpu& each : gpus)
    made.push_back(each.gpu->make_device(each.options));
  for (const PjrtDeviceOptions& each : state_.settings.logical_tpus())
    made.push_back(std::make_unique<PjrtDevice>(each));
  state_.settings.freeze(by);
  state_.owned = std::move(made);
  for (const auto& device : state_.owned) state_.devices.push_back(device.get());
  state_.num_cpus = static_cast<std::size_t>(cpus);
  state_.num_gpus = gpus.size();
  state_.initialized.store(true, std::memory_order_release);
}

std::span<DeviceImpl* const> DeviceManager::devices(std::string_view by) {
  initialize(by);
  return state_.devices;
}

std::span<DeviceImpl* const> DeviceManager::devices(DeviceType type, std::string_view by) {
  const std::span<DeviceImpl* const> all = devices(by);
  if (type == DeviceType::kCpu) return all.first(state_.num_cpus);
  const std::span<DeviceImpl* const> accelerators = all.subspan(state_.num_cpus);
  return type == DeviceType::kGpu ? accelerators.first(state_.num_gpus)
                                  : accelerators.subspan(state_.num_gpus);
}

DeviceImpl* DeviceManager::find(const DeviceName& name) {
  for (DeviceImpl* device : devices("a device look-up"))
    if (device->name() == name) return device;
  return nullptr;
}

DeviceImpl& DeviceManager::host() { return *devices("the first use of the host").front(); }

std::string DeviceManager::describe_devices() {
  std::vector<std::string_view> names;
  for (const DeviceImpl* device : devices("a device listing")) names.push_back(device->full_name());
  return fmt::format("[{}]", joined(names, ", "));
}

std::vector<std::string> DeviceManager::describe_mapping() {
  initialize("a device listing");
  const std::lock_guard<std::mutex> lock(state_.mutex);
  std::vector<std::string> lines;
  for (const DeviceSettings::LogicalGpu& each : state_.settings.logical_gpus()) {
    const config::DeviceDetails details = each.gpu->details();
    std::string& line = lines.emplace_back(
        fmt::format("{} -> device: {}, name: {}", each.options.name.to_string(),
                    each.physical.substr(each.physical.rfind(':') + 1), details.device_name));
    if (details.pci_bus_id) line += ", pci bus id: " + *details.pci_bus_id;
    if (details.compute_capability)
      line += fmt::format(", compute capability: {}.{}", details.compute_capability->first,
                          details.compute_capability->second);
  }
  return lines;
}

}  // namespace tandem
