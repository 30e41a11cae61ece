// The devices, their configuration and their initialisation. The only global state of Tandem
// besides thread-local scopes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/pjrt/pjrt_device.h"
#include "tandem/config.h"

namespace tandem {

// Thread-safe. Never destroyed, so that tensors may outlive main(). Settings may change until the
// runtime is initialised: by the first operation, or by anything that lists logical devices. After
// that, changing one throws RuntimeError, which names the initialising call; setting the same value
// again is allowed. Discovering physical devices does not initialise the runtime.
class DeviceManager {
 public:
  static DeviceManager& get();

  std::vector<config::PhysicalDevice> physical_devices(std::string_view type);
  config::DeviceDetails details(const config::PhysicalDevice& device);

  // Settings: see tandem/config.h for their meaning and errors.
  void set_visible_devices(std::span<const config::PhysicalDevice> devices, std::string_view type);
  std::vector<config::PhysicalDevice> visible_devices(std::string_view type);
  void set_memory_growth(const config::PhysicalDevice& device, bool enable);
  bool memory_growth(const config::PhysicalDevice& device);
  void set_memory_fraction(double fraction);
  void set_gpu_options(const config::GPUOptions& options);
  void set_device_count(const std::map<std::string, int>& count);
  void set_logical_devices(const config::PhysicalDevice& device,
                           std::span<const config::LogicalDeviceConfiguration> configuration);
  void set_emulated_gpus(int count, std::int64_t memory_mib);
  void load_pjrt_plugin(const PluginRequest& request);
  void set_intra_op_parallelism(int threads);
  int intra_op_parallelism();

  // Creates the logical devices if they do not exist. `by` names the call in later errors.
  void initialize(std::string_view by);
  bool initialized() const;

  // The logical devices, initialised if necessary: CPU:0, CPU:1, ..., then GPU:0, ..., TPU:0, ...
  std::span<DeviceImpl* const> devices(std::string_view by);
  std::span<DeviceImpl* const> devices(DeviceType type, std::string_view by);
  // The device of a fully specified name; null if there is none.
  DeviceImpl* find(const DeviceName& name);
  // The first CPU, which holds host data.
  DeviceImpl& host();

  // "[/job:localhost/replica:0/task:0/device:CPU:0, ...]", for error messages.
  std::string describe_devices();
  // A line per logical GPU: ".../device:GPU:0 -> device: 1, name: ..., pci bus id: ..."; "device"
  // is the index of the physical GPU.
  std::vector<std::string> describe_mapping();

  struct State;  // defined in device_manager.cc

 private:
  DeviceManager();
  State& state_;
};

}  // namespace tandem
