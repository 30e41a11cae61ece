// The device settings of the process before initialisation, validated when they are set, and the
// logical devices that result. Rules and messages are TensorFlow's (tf.config).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/discovery.h"
#include "device/physical_gpu.h"
#include "device/pjrt/pjrt_device.h"
#include "tandem/config.h"

namespace tandem {

// Not thread-safe; protected by the device manager's lock.
class DeviceSettings {
 public:
  // An empty `type` means every type.
  std::vector<config::PhysicalDevice> physical(std::string_view type) const;
  config::DeviceDetails details(const config::PhysicalDevice& device) const;

  void set_visible(std::span<const config::PhysicalDevice> devices, std::string_view type);
  // In the order they were set in, which is the order of the logical devices.
  std::vector<config::PhysicalDevice> visible(std::string_view type) const;
  void set_growth(const config::PhysicalDevice& device, bool enable);
  bool growth(const config::PhysicalDevice& device) const;
  void set_fraction(double fraction);
  void set_gpu_options(const config::GPUOptions& options);
  void set_device_count(const std::map<std::string, int>& count);
  void set_logical(const config::PhysicalDevice& device,
                   std::span<const config::LogicalDeviceConfiguration> configuration);
  void set_emulated_gpus(int count, std::int64_t memory_mib);
  void load_plugin(const PluginRequest& request);
  void set_intra_op(int threads);
  int intra_op() const { return intra_op_; }

  int num_logical_cpus() const;
  struct LogicalGpu {
    std::shared_ptr<const PhysicalGpu> gpu;
    std::string physical;  // "/physical_device:GPU:0"
    LogicalGpuOptions options;
  };
  // Throws InvalidArgumentError if the settings contradict each other.
  std::vector<LogicalGpu> logical_gpus() const;
  // The visible devices of the PJRT plug-in.
  std::vector<PjrtDeviceOptions> logical_tpus() const;
  // The number of threads of one operation, for `devices` devices that share the cores.
  int threads_for(std::size_t devices) const;

  // From now on, changing a setting throws RuntimeError, which names `by`.
  void freeze(std::string_view by);

 private:
  using Configurations = std::vector<config::LogicalDeviceConfiguration>;

  PhysicalGpus gpus() const { return frozen_by_ ? frozen_gpus_ : discover_gpus(emulated_); }
  // The client of the plug-in that was loaded, or that TANDEM_PJRT_PLUGIN names; null if there is
  // none.
  const std::shared_ptr<pjrt::Client>& plugin() const;
  std::shared_ptr<const PhysicalGpu> gpu_of(const config::PhysicalDevice& device) const;
  void check_exists(const config::PhysicalDevice& device) const;
  void refuse_if_frozen(std::string_view what, std::string_view setter) const;
  const Configurations* configurations_of(const config::PhysicalDevice& device) const;
  bool common_growth(const std::vector<config::PhysicalDevice>& gpus) const;
  void set_cpu_count(int count);
  void set_gpu_count(int count);
  // The visible GPUs, limited to the configured count.
  std::vector<config::PhysicalDevice> used_gpus() const;

  // Settings of a device that does not exist any more have no effect.
  std::optional<EmulatedGpuRequest> emulated_;
  std::optional<std::vector<config::PhysicalDevice>> visible_;  // not set: all devices
  std::optional<int> gpu_count_;  // limit on the number of visible GPUs
  std::map<std::string, bool> growth_;
  std::map<std::string, Configurations> configurations_;
  double fraction_ = 0.0;
  int intra_op_ = 0;
  std::optional<std::string> frozen_by_;
  PhysicalGpus frozen_gpus_;
  mutable std::shared_ptr<pjrt::Client> plugin_;
  std::optional<PluginRequest> plugin_request_;
};

}  // namespace tandem
