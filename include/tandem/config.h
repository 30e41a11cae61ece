/// @file
/// Configuration of devices, memory and threads. As tf.config.
///
/// All setters but set_soft_device_placement() and run_functions_eagerly() must be called before
/// the runtime is initialized, which the first operation and any listing of LOGICAL devices do.
/// Later they throw a RuntimeError that names the call that initialized it; setting the same value
/// again is allowed. Listing PHYSICAL devices does not initialize the runtime.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Configuration of devices, memory and threads.
namespace tandem::config {

/// A CPU or GPU of this machine. As tf.config.PhysicalDevice.
struct PhysicalDevice {
  std::string name{};         ///< for example "/physical_device:GPU:0"
  std::string device_type{};  ///< "CPU" or "GPU"
  /// Equal name and type.
  friend bool operator==(const PhysicalDevice&, const PhysicalDevice&) = default;
};
/// Prints the name.
std::ostream& operator<<(std::ostream& out, const PhysicalDevice& device);

/// A device on which operations run. As tf.config.LogicalDevice.
struct LogicalDevice {
  std::string name{};         ///< for example "/job:localhost/replica:0/task:0/device:GPU:0"
  std::string device_type{};  ///< "CPU" or "GPU"
  /// Equal name and type.
  friend bool operator==(const LogicalDevice&, const LogicalDevice&) = default;
};
/// Prints the name.
std::ostream& operator<<(std::ostream& out, const LogicalDevice& device);

/// Properties of a physical device. As tf.config.experimental.get_device_details.
struct DeviceDetails {
  std::string device_name{};      ///< for example "AMD EPYC", "NVIDIA H200" or "Emulated GPU"
  std::int64_t memory_bytes = 0;  ///< total memory in bytes
  std::optional<std::string> pci_bus_id{};                  ///< real GPUs only
  std::optional<std::pair<int, int>> compute_capability{};  ///< real GPUs only
  bool emulated = false;                                    ///< whether this is an emulated GPU
  /// @{
  /// TPUs only: platform of the plug-in ("tpu", "cpu"), position in the mesh of chips (empty if the
  /// plug-in has none), and core of that chip.
  std::string platform{};
  std::vector<std::int64_t> coordinates{};
  std::int64_t core_on_chip = 0;
  /// @}
};

/// One logical device of set_logical_device_configuration(). As
/// tf.config.LogicalDeviceConfiguration.
struct LogicalDeviceConfiguration {
  std::optional<std::int64_t> memory_limit{};  ///< MiB; required for a GPU, not allowed for a CPU
  std::optional<int> experimental_priority{};  ///< stream priority, in the GPU's range
};

/// Lists the devices of `device_type` ("CPU", "GPU"; default: all), CPUs first. As
/// tf.config.list_physical_devices.
std::vector<PhysicalDevice> list_physical_devices(std::string_view device_type = {});
/// Lists the logical devices of `device_type` likewise. Initializes the runtime. As
/// tf.config.list_logical_devices.
std::vector<LogicalDevice> list_logical_devices(std::string_view device_type = {});
/// Returns a device's properties. Throws InvalidArgumentError "Unrecognized device: ..." for one
/// that does not exist.
DeviceDetails get_device_details(const PhysicalDevice& device);

/// Makes only these devices of `device_type` logical devices, in this order. An empty list hides
/// all. A hidden CPU is not listed but still holds host data. As tf.config.set_visible_devices.
void set_visible_devices(const std::vector<PhysicalDevice>& devices,
                         std::string_view device_type = {});
/// The same for one device.
template <std::same_as<PhysicalDevice> Device>  // not {}, which is a list of none
void set_visible_devices(const Device& device, std::string_view device_type = {}) {
  set_visible_devices(std::vector<PhysicalDevice>{device}, device_type);
}
/// Lists the visible devices of `device_type` (default: all).
std::vector<PhysicalDevice> get_visible_devices(std::string_view device_type = {});

/// Whether a GPU's memory is allocated as needed (true) or nearly all at first use (false, the
/// default). The environment variable TANDEM_FORCE_GPU_ALLOW_GROWTH=true|false overrides the
/// setting, and so does TF_FORCE_GPU_ALLOW_GROWTH if that is not set. As
/// tf.config.experimental.set_memory_growth.
void set_memory_growth(const PhysicalDevice& device, bool enable);
/// Returns the setting of set_memory_growth().
bool get_memory_growth(const PhysicalDevice& device);
/// Fraction of each GPU's TOTAL memory that this process may use. 0 (the default): all but a
/// reserve for the system.
void set_per_process_gpu_memory_fraction(double fraction);

/// The device options of a TensorFlow session (ConfigProto's GPUOptions). Options that are not
/// given keep their setting.
struct GPUOptions {
  std::optional<bool> allow_growth{};  ///< as set_memory_growth(), for every GPU
  /// As set_per_process_gpu_memory_fraction().
  std::optional<double> per_process_gpu_memory_fraction{};
  /// Physical GPUs in the order of the logical ones: with "5,3" GPU:0 is physical GPU 5.
  std::string visible_device_list = {};
};
/// Applies set_memory_growth(), set_per_process_gpu_memory_fraction() and set_visible_devices();
/// none of them if one throws. Throws InvalidArgumentError "Invalid visible device index: ...".
void set_gpu_options(const GPUOptions& options);
/// Number of devices per type, as ConfigProto's device_count: {{"CPU", 2}} makes two logical CPUs,
/// {{"CPU", 0}} hides the CPU, {{"GPU", 1}} keeps the first visible GPU only.
void set_device_count(const std::map<std::string, int>& device_count);

/// Splits a physical device into several logical ones. On a GPU each needs a memory_limit. Either
/// all or none of them have a priority. As tf.config.set_logical_device_configuration.
void set_logical_device_configuration(
    const PhysicalDevice& device, const std::vector<LogicalDeviceConfiguration>& logical_devices);
/// Makes `count` logical CPUs, which share the cores.
void set_logical_cpus(int count);
/// Makes `count` emulated GPUs of `memory_mib` MiB each. The environment variable
/// TANDEM_EMULATED_GPUS=N or N:MiB does the same; the call takes precedence. Emulated GPUs exist
/// only on machines without a real one, and CUDA_VISIBLE_DEVICES applies to them. Their memory is
/// not reserved; it uses host memory as it is allocated.
void set_emulated_gpus(int count, std::int64_t memory_mib = 4096);

/// Value of an option of a PJRT plug-in.
using PluginOption = std::variant<std::string, std::int64_t, bool, float>;
/// Loads a PJRT plug-in, whose devices are then TPU:0, TPU:1 and so on, whatever hardware it is
/// for. They run traced functions under distribute::TPUStrategy (tandem/tpu.h). The environment
/// variable TANDEM_PJRT_PLUGIN=path does the same without options; the call takes precedence. Must
/// be called before the devices are initialized, else throws RuntimeError. docs/tpu.md has the
/// plug-ins.
///
/// `options` are the plug-in's, by name: {{"cpu_device_count", 8}}. Throws NotFoundError for a file
/// that does not exist, InvalidArgumentError for one that is not a plug-in, FailedPreconditionError
/// for one of another version of the PJRT C API, UnavailableError if this build has no PJRT, and
/// the plug-in's own errors.
void load_pjrt_plugin(const std::string& path,
                      const std::map<std::string, PluginOption>& options = {});

/// The same for devices that this machine need not have: those of a topology that the plug-in knows
/// by name, such as "v5e:2x2" of libtpu. explain() then compiles steps for them; nothing runs
/// there, and a tensor on such a device can only be copied back. Some plug-ins end the process for
/// a program that they cannot compile. `tandem compile` does this in a process of its own. Throws
/// the plug-in's error for a topology that it does not know.
void load_pjrt_topology(const std::string& path, const std::string& topology);

/// Whether an operation whose device does not exist, or has no kernel for it, runs on another
/// device instead of throwing. Default: true. May be changed at any time. As
/// tf.config.set_soft_device_placement.
void set_soft_device_placement(bool enabled);
/// Returns the setting of set_soft_device_placement().
bool get_soft_device_placement();

/// Turns on replica-invariant training: the bits of the result do not depend on the number of
/// replicas, threads or processes. 0, the default, turns it off. Throws InvalidArgumentError unless
/// `parts` is 0 or a power of two (8 is typical).
///
/// The global batch is split into `parts` parts. Each replica computes its parts one after another.
/// Gradients, metrics and moving statistics are summed over the parts by one fixed binary tree.
/// fit() and evaluate() do this themselves; custom loops use distribute::for_each_part() or
/// DistributedDataParallel::for_each_part(). The number of replicas must be a power of two of at
/// most `parts`. All processes must set the same value, between steps. See
/// docs/replica_invariance.md for the cost.
void set_replica_invariant_parts(int parts);
/// Returns the setting of set_replica_invariant_parts().
int get_replica_invariant_parts();

/// Number of cores that operations use in total, shared by the logical CPUs. 0, the default: all
/// cores of the process. As tf.config.threading.set_intra_op_parallelism_threads.
void set_intra_op_parallelism_threads(int threads);
/// Returns the setting of set_intra_op_parallelism_threads().
int get_intra_op_parallelism_threads();
/// Limits how many operations of a device run at the same time. Changes nothing: they run one after
/// another, within every limit. Throws InvalidArgumentError for a negative number. As
/// tf.config.threading.set_inter_op_parallelism_threads.
void set_inter_op_parallelism_threads(int threads);

/// Whether calls of traced functions (tandem/function.h) and the steps of fit(), evaluate() and
/// predict() run their callables eagerly instead, for debugging: each call runs the host code, and
/// elements can be read. Default: false. May be changed at any time; functions of parameter server
/// and TPU strategies are traced all the same. As tf.config.run_functions_eagerly.
void run_functions_eagerly(bool run_eagerly);
/// Returns the setting of run_functions_eagerly().
bool functions_run_eagerly();

/// Bytes in use, by purpose.
struct MemoryByTag {
  std::int64_t weights = 0;      ///< variables of models
  std::int64_t activations = 0;  ///< results of operations
  std::int64_t gradients = 0;    ///< results of backward passes
  std::int64_t optimizer = 0;    ///< slots and counters of optimizers
  std::int64_t workspace = 0;    ///< temporary memory of kernels and collectives
  std::int64_t other = 0;        ///< data and constants
};

/// Memory statistics of a device, in bytes.
struct MemoryInfo {
  std::int64_t current = 0;             ///< bytes in use
  std::int64_t peak = 0;                ///< the most that was in use
  std::int64_t limit = 0;               ///< upper limit; 0 if there is none
  std::int64_t reserved = 0;            ///< allocated from the device
  std::int64_t largest_free_block = 0;  ///< largest allocation possible without growing
  double fragmentation = 0.0;           ///< (free - largest free block) / free
  MemoryByTag by_tag{};                 ///< `current` by purpose
  MemoryByTag peak_by_tag{};            ///< peak of each purpose; not necessarily at the same time
};
/// Returns the memory statistics of a logical device ("GPU:0", "/gpu:1" or a full name) after the
/// work enqueued on it. The workspace of emulated GPUs counts as the host's. Initializes the
/// runtime. As tf.config.experimental.get_memory_info.
MemoryInfo get_memory_info(std::string_view device);
/// Resets the peaks to the current values, and the busy share that parallel::memory_balance()
/// reports. As tf.config.experimental.reset_memory_stats.
void reset_memory_stats(std::string_view device);
/// Frees memory that traced functions, sessions and models keep between runs, and returns unused
/// memory to the device. Returns the number of bytes returned. As torch.cuda.empty_cache.
std::int64_t trim_memory(std::string_view device);

}  // namespace tandem::config

namespace tandem {
using config::get_soft_device_placement;
using config::set_soft_device_placement;
}  // namespace tandem
