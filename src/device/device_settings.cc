#include "device/device_settings.h"

#include <algorithm>
#include <set>

#include "core/env.h"
#include "core/joined.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/cpu/cpu_device.h"
#include "device/gpu_memory.h"
#include "device/mmap_memory.h"

namespace tandem {

using config::LogicalDeviceConfiguration;
using config::PhysicalDevice;

namespace {

bool contains(const std::vector<PhysicalDevice>& devices, const PhysicalDevice& device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

bool same(std::span<const LogicalDeviceConfiguration> a,
          std::span<const LogicalDeviceConfiguration> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.memory_limit == y.memory_limit && x.experimental_priority == y.experimental_priority;
  });
}

std::optional<bool> forced_growth() {
  if (const auto ours = env_bool("TANDEM_FORCE_GPU_ALLOW_GROWTH")) return ours;
  return env_bool("TF_FORCE_GPU_ALLOW_GROWTH");
}

// The number at the end of "/physical_device:TPU:3".
int index_of(const PhysicalDevice& device) {
  return std::stoi(device.name.substr(device.name.rfind(':') + 1));
}

void check_cpu(std::span<const LogicalDeviceConfiguration> configuration) {
  for (const LogicalDeviceConfiguration& each : configuration) {
    if (each.memory_limit)
      fail<InvalidArgumentError>(
          "Setting memory limit on CPU virtual devices is currently not supported");
    if (each.experimental_priority)  // two spaces, as in TensorFlow
      fail<InvalidArgumentError>(
          "Setting experimental_priority on CPU virtual  devices is currently not supported");
  }
}

void check_gpu(const PhysicalDevice& device, const PhysicalGpu& gpu,
               std::span<const LogicalDeviceConfiguration> configuration) {
  const std::int64_t memory = gpu.details().memory_bytes;
  std::int64_t total = 0;
  std::size_t priorities = 0;
  for (const LogicalDeviceConfiguration& each : configuration) {
    if (!each.memory_limit)
      fail<InvalidArgumentError>("Setting memory limit is required for GPU virtual devices");
    if (*each.memory_limit < 1 || *each.memory_limit > memory / kMiB)
      fail<InvalidArgumentError>(
          "[set_logical_device_configuration] expected a memory_limit from 1 to {} MiB on {}, got "
          "{}",
          memory / kMiB, device.name, *each.memory_limit);
    total += *each.memory_limit;
    if (each.experimental_priority) ++priorities;
  }
  if (total > memory / kMiB)
    fail<InvalidArgumentError>(
        "[set_logical_device_configuration] expected limits of at most {} MiB together on {}, got "
        "{}",
        memory / kMiB, device.name, total);
  if (priorities != 0 && priorities != configuration.size())
    fail<InvalidArgumentError>("priority must be specified for all virtual devices");
  if (priorities == 0) return;
  const PriorityRange range = gpu.priority_range();
  for (std::size_t i = 0; i < configuration.size(); ++i)
    if (const int priority = *configuration[i].experimental_priority;
        priority < range.most_urgent || priority > range.least_urgent)
      fail<InvalidArgumentError>(
          "Priority {} is outside the range of supported priorities [{}, {}] for virtual device {} "
          "on {}",
          priority, range.most_urgent, range.least_urgent, i, device.name);
}

}  // namespace

std::vector<PhysicalDevice> DeviceSettings::physical(std::string_view type) const {
  std::vector<PhysicalDevice> devices;
  if (type.empty() || type == "CPU") devices.push_back(physical_device("CPU", 0));
  if (type.empty() || type == "GPU") {
    const int count = static_cast<int>(gpus().size());
    for (int i = 0; i < count; ++i) devices.push_back(physical_device("GPU", i));
  }
  if ((type.empty() || type == "TPU") && plugin()) {
    const int count = static_cast<int>(plugin()->devices().size());
    for (int i = 0; i < count; ++i) devices.push_back(physical_device("TPU", i));
  }
  return devices;
}

void DeviceSettings::check_exists(const PhysicalDevice& device) const {
  const std::vector<PhysicalDevice> all = physical({});
  if (contains(all, device)) return;
  std::vector<std::string> names;
  for (const PhysicalDevice& each : all) names.push_back(each.name);
  fail<InvalidArgumentError>("Unrecognized device: '{}' of type '{}'; there are [{}]", device.name,
                             device.device_type, joined(names, ", "));
}

std::shared_ptr<const PhysicalGpu> DeviceSettings::gpu_of(const PhysicalDevice& device) const {
  const std::vector<PhysicalDevice> all = physical("GPU");
  const auto found = std::find(all.begin(), all.end(), device);
  TANDEM_ASSERT(found != all.end());
  return gpus().at(static_cast<std::size_t>(found - all.begin()));
}

config::DeviceDetails DeviceSettings::details(const PhysicalDevice& device) const {
  check_exists(device);
  if (device.device_type == "GPU") return gpu_of(device)->details();
  if (device.device_type == "TPU") {
    const int index = index_of(device);
    const pjrt::DeviceInfo& info = plugin()->devices()[static_cast<std::size_t>(index)];
    return {.device_name = info.kind,
            .memory_bytes = memory_of(*plugin(), index),
            .platform = plugin()->plugin().platform,
            .coordinates = info.coordinates,
            .core_on_chip = info.core_on_chip};
  }
  return {.device_name = cpu_model_name(), .memory_bytes = physical_memory()};
}

void DeviceSettings::refuse_if_frozen(std::string_view what, std::string_view setter) const {
  if (!frozen_by_) return;
  fail<RuntimeError>(
      "{} (by {}). Call config::{} before the first operation and before anything that lists "
      "logical devices.",
      what, *frozen_by_, setter);
}

void DeviceSettings::set_visible(std::span<const PhysicalDevice> devices, std::string_view type) {
  std::vector<PhysicalDevice> wanted;
  if (!type.empty()) {
    wanted = visible({});
    std::erase_if(wanted, [&](const auto& each) { return each.device_type == type; });
  }
  for (const PhysicalDevice& device : devices) {
    check_exists(device);
    if (!type.empty() && device.device_type != type)
      fail<InvalidArgumentError>("Unrecognized device: '{}' is no {}", device.name, type);
    if (contains(wanted, device))
      fail<InvalidArgumentError>("[set_visible_devices] expected each device once, got {} twice",
                                 device.name);
    wanted.push_back(device);
  }
  // CPUs come first, whatever the order in which the types were set.
  std::stable_partition(wanted.begin(), wanted.end(),
                        [](const auto& each) { return each.device_type == "CPU"; });
  if (wanted == visible({})) return;
  refuse_if_frozen("Visible devices cannot be modified after being initialized",
                   "set_visible_devices");
  visible_ = std::move(wanted);
}

std::vector<PhysicalDevice> DeviceSettings::visible(std::string_view type) const {
  const std::vector<PhysicalDevice> there = physical(type);
  if (!visible_) return there;
  std::vector<PhysicalDevice> result = *visible_;
  std::erase_if(result, [&](const PhysicalDevice& each) { return !contains(there, each); });
  return result;
}

const std::shared_ptr<pjrt::Client>& DeviceSettings::plugin() const {
  if (!plugin_ && !frozen_by_)
    if (const std::optional<std::string> path = env_string("TANDEM_PJRT_PLUGIN"))
      plugin_ = pjrt::load_client(*path, {});
  return plugin_;
}

void DeviceSettings::load_plugin(const PluginRequest& request) {
  if (plugin_request_ == request) return;
  refuse_if_frozen("The PJRT plug-in cannot be modified after being initialized",
                   "load_pjrt_plugin");
  if (request.path.empty())
    fail<InvalidArgumentError>("[load_pjrt_plugin] expected the path of a plug-in, got none");
  plugin_ = request.topology.empty() ? pjrt::load_client(request.path, request.options)
                                     : pjrt::load_compiler(request.path, request.topology);
  plugin_request_ = request;
}

std::vector<PjrtDeviceOptions> DeviceSettings::logical_tpus() const {
  std::vector<PjrtDeviceOptions> result;
  for (const PhysicalDevice& device : visible("TPU")) {
    const int index = index_of(device);
    result.push_back({.name = local_device_name("TPU", static_cast<int>(result.size())),
                      .client = plugin(),
                      .client_index = index,
                      .memory_limit = memory_of(*plugin(), index)});
  }
  return result;
}

void DeviceSettings::set_growth(const PhysicalDevice& device, bool enable) {
  check_exists(device);
  if (device.device_type != "GPU")
    fail<InvalidArgumentError>("Cannot set memory growth on non-GPU and non-Pluggable devices");
  const auto found = growth_.find(device.name);
  if (found != growth_.end() && found->second == enable) return;
  if (frozen_by_ && growth(device) == enable) return;
  refuse_if_frozen("Physical devices cannot be modified after being initialized",
                   "set_memory_growth");
  if (configurations_of(device))
    fail<InvalidArgumentError>(
        "Cannot set memory growth on device when virtual devices configured");
  growth_[device.name] = enable;
}

bool DeviceSettings::growth(const PhysicalDevice& device) const {
  check_exists(device);
  if (device.device_type != "GPU")
    fail<InvalidArgumentError>("[get_memory_growth] expected a GPU, got {}", device.name);
  if (const auto forced = forced_growth()) return *forced;
  const auto found = growth_.find(device.name);
  return found != growth_.end() && found->second;
}

void DeviceSettings::set_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction <= 1.0))
    fail<InvalidArgumentError>(
        "[set_per_process_gpu_memory_fraction] expected a fraction from 0 to 1, got {}", fraction);
  if (fraction == fraction_) return;
  refuse_if_frozen("Physical devices cannot be modified after being initialized",
                   "set_per_process_gpu_memory_fraction");
  fraction_ = fraction;
}

void DeviceSettings::set_gpu_options(const config::GPUOptions& options) {
  if (!options.visible_device_list.empty()) {
    std::vector<PhysicalDevice> wanted;
    for (const int index :
         parse_device_list(options.visible_device_list, static_cast<int>(gpus().size())))
      wanted.push_back(physical_device("GPU", index));
    set_visible(wanted, "GPU");
  }
  if (options.allow_growth)
    for (const PhysicalDevice& gpu : physical("GPU")) set_growth(gpu, *options.allow_growth);
  if (options.per_process_gpu_memory_fraction)
    set_fraction(*options.per_process_gpu_memory_fraction);
}

void DeviceSettings::set_device_count(const std::map<std::string, int>& count) {
  for (const auto& [type, wanted] : count) {
    if (type != "CPU" && type != "GPU")
      fail<InvalidArgumentError>("[set_device_count] expected type CPU or GPU, got '{}'", type);
    if (wanted < 0 || wanted > kMaxDeviceCount)
      fail<InvalidArgumentError>("[set_device_count] expected 0 to {} {}s, got {}", kMaxDeviceCount,
                                 type, wanted);
    if (type == "CPU")
      set_cpu_count(wanted);
    else
      set_gpu_count(wanted);
  }
}

void DeviceSettings::set_cpu_count(int count) {
  const std::vector<PhysicalDevice> cpus = physical("CPU");
  set_visible(count > 0 ? cpus : std::vector<PhysicalDevice>(), "CPU");
  if (count > 0) set_logical(cpus.front(), Configurations(static_cast<std::size_t>(count)));
}

void DeviceSettings::set_gpu_count(int count) {
  const int there = static_cast<int>(visible("GPU").size());
  if (std::min(count, there) != std::min(gpu_count_.value_or(there), there))
    refuse_if_frozen("Visible devices cannot be modified after being initialized",
                     "set_device_count");
  gpu_count_ = count;
}

std::vector<PhysicalDevice> DeviceSettings::used_gpus() const {
  std::vector<PhysicalDevice> used = visible("GPU");
  if (gpu_count_ && static_cast<std::size_t>(*gpu_count_) < used.size())
    used.resize(static_cast<std::size_t>(*gpu_count_));
  return used;
}

const DeviceSettings::Configurations* DeviceSettings::configurations_of(
    const PhysicalDevice& device) const {
  const auto found = configurations_.find(device.name);
  return found == configurations_.end() || found->second.empty() ? nullptr : &found->second;
}

void DeviceSettings::set_logical(const PhysicalDevice& device,
                                 std::span<const LogicalDeviceConfiguration> configuration) {
  check_exists(device);
  if (device.device_type == "TPU")
    fail<InvalidArgumentError>(
        "[set_logical_device_configuration] expected a CPU or a GPU, got {}: a plug-in's device "
        "cannot be split",
        device.name);
  if (device.device_type == "CPU")
    check_cpu(configuration);
  else
    check_gpu(device, *gpu_of(device), configuration);
  // One CPU is the default.
  if (device.device_type == "CPU" && configuration.size() == 1) configuration = {};
  const Configurations* now = configurations_of(device);
  if (same(now ? *now : Configurations(), configuration)) return;
  refuse_if_frozen(
      "Virtual devices cannot be modified after being initialized",
      device.device_type == "CPU" ? "set_logical_cpus" : "set_logical_device_configuration");
  configurations_[device.name].assign(configuration.begin(), configuration.end());
}

void DeviceSettings::set_emulated_gpus(int count, std::int64_t memory_mib) {
  if (count < 0 || count > kMaxDeviceCount || memory_mib < 1 || memory_mib > kMaxEmulatedMib)
    fail<InvalidArgumentError>(
        "[set_emulated_gpus] expected 0 to {} GPUs of 1 to {} MiB each, got {} of {}",
        kMaxDeviceCount, kMaxEmulatedMib, count, memory_mib);
  const EmulatedGpuRequest request{count, memory_mib};
  if (emulated_ == request) return;
  refuse_if_frozen("Emulated GPUs cannot be modified after being initialized", "set_emulated_gpus");
  emulated_ = request;
  if (const PhysicalGpus found = gpus(); !found.empty() && !found[0]->details().emulated)
    logging::warn("set_emulated_gpus has no effect: this machine has {} real GPUs", found.size());
}

void DeviceSettings::set_intra_op(int threads) {
  if (threads < 0)
    fail<InvalidArgumentError>(
        "[set_intra_op_parallelism_threads] expected 0 or more threads, got {}", threads);
  if (threads == intra_op_) return;
  refuse_if_frozen("Intra op parallelism cannot be modified after initialization",
                   "set_intra_op_parallelism_threads");
  intra_op_ = threads;
}

int DeviceSettings::threads_for(std::size_t devices) const {
  const int all = intra_op_ > 0 ? intra_op_ : available_cores();
  return std::max(1, all / static_cast<int>(std::max<std::size_t>(1, devices)));
}

int DeviceSettings::num_logical_cpus() const {
  const Configurations* configurations = configurations_of(physical_device("CPU", 0));
  return configurations ? static_cast<int>(configurations->size()) : 1;
}

bool DeviceSettings::common_growth(const std::vector<PhysicalDevice>& gpus) const {
  const bool first = !gpus.empty() && growth(gpus.front());
  for (const PhysicalDevice& gpu : gpus)
    if (growth(gpu) != first)
      fail<InvalidArgumentError>("Memory growth cannot differ between GPU devices");
  return first;
}

std::vector<DeviceSettings::LogicalGpu> DeviceSettings::logical_gpus() const {
  const std::vector<PhysicalDevice> gpus = used_gpus();
  const bool any_configured = std::any_of(
      gpus.begin(), gpus.end(), [&](const auto& gpu) { return configurations_of(gpu) != nullptr; });
  if (any_configured && fraction_ > 0.0)
    fail<InvalidArgumentError>(
        "It's invalid to set per_process_gpu_memory_fraction when virtual devices are configured");
  // Growth does not apply to virtual devices: one of them disables it for all GPUs.
  const bool allow_growth = any_configured ? forced_growth().value_or(false) : common_growth(gpus);

  std::vector<LogicalGpu> result;
  const auto add = [&](const std::shared_ptr<const PhysicalGpu>& gpu, const PhysicalDevice& device,
                       std::int64_t limit, std::optional<int> priority) {
    result.push_back({gpu,
                      device.name,
                      {.name = local_device_name("GPU", static_cast<int>(result.size())),
                       .memory_limit = limit,
                       .allow_growth = allow_growth,
                       .priority = priority}});
  };
  for (const PhysicalDevice& each : gpus) {
    const std::shared_ptr<const PhysicalGpu> gpu = gpu_of(each);
    if (const Configurations* configurations = configurations_of(each)) {
      check_gpu(each, *gpu, *configurations);  // emulated GPUs may have become smaller since
      for (const LogicalDeviceConfiguration& one : *configurations)
        add(gpu, each, *one.memory_limit * kMiB, one.experimental_priority);
    } else {
      add(gpu, each, gpu->memory_limit(fraction_), std::nullopt);
    }
  }
  for (LogicalGpu& each : result) each.options.intra_op_threads = threads_for(result.size());
  return result;
}

void DeviceSettings::freeze(std::string_view by) {
  frozen_gpus_ = gpus();
  frozen_by_ = std::string(by);
}

}  // namespace tandem
