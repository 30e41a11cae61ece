// Which devices there are, how they are configured, and the moment they come to life. With the
// thread's scopes, the only global state of Tandem.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "tandem/config.h"

namespace tandem {

// Thread-safe. Never destroyed, so that tensors may outlive main(). Settings are read until the
// runtime is initialised: by the first operation, or by anything that lists logical devices. From
// then on changing one is a RuntimeError that names the call that initialised the runtime; setting
// the same value again is always allowed. Discovering physical devices initialises nothing.
class DeviceManager {
 public:
  static DeviceManager& get();

  std::vector<config::PhysicalDevice> physical_devices(std::string_view type);
  config::DeviceDetails details(const config::PhysicalDevice& device);

  // Settings: see tandem/config.h for what each means and the errors it throws.
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
  void set_intra_op_parallelism(int threads);
  int intra_op_parallelism();

  // Creates the logical devices unless they exist. `by` names the call, for later errors.
  void initialize(std::string_view by);
  bool initialized() const;

  // The logical devices, initialising if need be: CPU:0, CPU:1, ..., then GPU:0, ...
  std::span<Device* const> devices(std::string_view by);
  std::span<Device* const> devices(DeviceType type, std::string_view by);
  // The device of a fully specified name, or null.
  Device* find(const DeviceName& name);
  // The first CPU: home of host data.
  Device& host();

  // "[/job:localhost/replica:0/task:0/device:CPU:0, ...]", for error texts.
  std::string describe_devices();

  struct State;  // tests and backends see it in device_manager.cc

 private:
  DeviceManager();
  State& state_;
};

}  // namespace tandem
