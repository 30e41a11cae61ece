// Devices and their memory: what there is, and how the process uses it.
//
// Everything that sets something, but soft placement, must come before the runtime is initialised,
// which the first operation and anything that lists LOGICAL devices do. Later it is a RuntimeError
// that names the call which initialised the runtime; setting the same value again is allowed.
// Asking for PHYSICAL devices initialises nothing. After TensorFlow's tf.config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::config {

struct PhysicalDevice {
  std::string name{};         // "/physical_device:GPU:0"
  std::string device_type{};  // "GPU"
  friend bool operator==(const PhysicalDevice&, const PhysicalDevice&) = default;
};

struct LogicalDevice {
  std::string name{};  // "/job:localhost/replica:0/task:0/device:GPU:0"
  std::string device_type{};
  friend bool operator==(const LogicalDevice&, const LogicalDevice&) = default;
};

struct DeviceDetails {
  std::string device_name{};  // "AMD EPYC", "NVIDIA H200", "Emulated GPU"
  std::int64_t memory_bytes = 0;
  std::optional<std::string> pci_bus_id{};                  // real GPUs only
  std::optional<std::pair<int, int>> compute_capability{};  // real GPUs only
  bool emulated = false;
};

struct LogicalDeviceConfiguration {
  std::optional<std::int64_t> memory_limit{};  // MiB; required on a GPU, refused on a CPU
  std::optional<int> experimental_priority{};
};

// All devices of `device_type` ("CPU", "GPU"; empty: every type). Order: CPUs, then GPUs.
std::vector<PhysicalDevice> list_physical_devices(std::string_view device_type = {});
// The same for logical devices. Initialises the runtime.
std::vector<LogicalDevice> list_logical_devices(std::string_view device_type = {});
// Throws InvalidArgumentError "Unrecognized device: ..." for one that does not exist.
DeviceDetails get_device_details(const PhysicalDevice& device);

// Only these devices of `device_type` get logical devices, in this order. An empty list hides all;
// a hidden CPU is not listed, but stays the home of host data.
void set_visible_devices(const std::vector<PhysicalDevice>& devices,
                         std::string_view device_type = {});
std::vector<PhysicalDevice> get_visible_devices(std::string_view device_type = {});

// Whether a GPU's memory is taken as needed (true) or nearly all at first use (false, the default).
// The environment variable TANDEM_FORCE_GPU_ALLOW_GROWTH=true|false overrides the setting, and so
// does TF_FORCE_GPU_ALLOW_GROWTH where that is not set.
void set_memory_growth(const PhysicalDevice& device, bool enable);
bool get_memory_growth(const PhysicalDevice& device);
// The share of each GPU's TOTAL memory that this process may use; 0: all but the reserve.
void set_per_process_gpu_memory_fraction(double fraction);

// The options of a TensorFlow session's configuration (ConfigProto) that speak of devices. What is
// not given stays as it is.
struct GPUOptions {
  std::optional<bool> allow_growth{};  // of every GPU
  std::optional<double> per_process_gpu_memory_fraction{};
  // Physical GPUs in the order of the logical ones: with "5,3" GPU:0 is the physical GPU 5.
  std::string visible_device_list = {};
};
// As set_memory_growth, set_per_process_gpu_memory_fraction and set_visible_devices; all of it or,
// when one throws, nothing. Throws InvalidArgumentError "Invalid visible device index: ...".
void set_gpu_options(const GPUOptions& options);
// {{"CPU", 2}}: 2 logical CPUs, none visible with 0. {{"GPU", 1}}: the first visible GPU alone.
void set_device_count(const std::map<std::string, int>& device_count);

// Several logical devices on one physical one. A GPU's need a memory_limit each. Priorities are of
// the devices' streams, in the GPU's range; all of them have one, or none.
void set_logical_device_configuration(
    const PhysicalDevice& device, const std::vector<LogicalDeviceConfiguration>& logical_devices);
// `count` logical CPUs that share the cores between them.
void set_logical_cpus(int count);
// `count` emulated GPUs of `memory_mib` MiB each. An environment variable of the form
// TANDEM_EMULATED_GPUS=N or N:MiB does the same; the call wins over it. Emulated GPUs appear only
// where there is no real one, and CUDA_VISIBLE_DEVICES hides them as it would real ones. Nothing of
// their memory is reserved; it takes up the host's as it is used.
void set_emulated_gpus(int count, std::int64_t memory_mib = 4096);

// Whether an operation asked onto a device that does not exist, or that has no kernel for it, runs
// on another one instead (on by default). May change at any time.
void set_soft_device_placement(bool enabled);
bool get_soft_device_placement();

// Replica-invariant sums: the bits of a training run do not depend on how many replicas, threads or
// processes share it. A global batch is cut into `parts` parts (a power of two, 8 as a rule; 0
// switches the mode off, as it is by default). Each replica computes its parts one after the other,
// and gradients, metrics and moving statistics are added by one binary tree over the parts, whoever
// computed them. fit() and evaluate() do so by themselves; a step of your own goes into
// distribute::for_each_part(), or DistributedDataParallel::for_each_part(). The number of replicas
// is a power of two of at most `parts`. Each process sets the same, between steps. The costs are in
// docs/replica_invariance.md. Throws InvalidArgumentError for another number of parts.
void set_replica_invariant_parts(int parts);
int get_replica_invariant_parts();

// Cores that operations may use in all; 0: every core of the process. Logical CPUs share them.
void set_intra_op_parallelism_threads(int threads);
int get_intra_op_parallelism_threads();

// Bytes by what they are used for.
struct MemoryByTag {
  std::int64_t weights = 0;      // variables, but an optimizer's
  std::int64_t activations = 0;  // what operations compute
  std::int64_t gradients = 0;    // what backward passes compute
  std::int64_t optimizer = 0;    // an optimizer's slots and counts
  std::int64_t workspace = 0;    // what a kernel or a collective needs while it runs
  std::int64_t other = 0;        // data and constants
};

struct MemoryInfo {
  std::int64_t current = 0;             // bytes in use
  std::int64_t peak = 0;                // the most that was in use
  std::int64_t limit = 0;               // bytes; 0: none
  std::int64_t reserved = 0;            // bytes taken from the device
  std::int64_t largest_free_block = 0;  // bytes
  double fragmentation = 0.0;           // (free - largest free block) / free
  MemoryByTag by_tag{};                 // their sum is `current`
  MemoryByTag peak_by_tag{};            // the most of each; they need not have come together
};
// Statistics of a logical device ("GPU:0", "/gpu:1", a full name), once the work enqueued on it is
// done. The workspace of an emulated GPU's kernels is the host's. Initialises the runtime.
MemoryInfo get_memory_info(std::string_view device);
// Makes the peaks what is in use now.
void reset_memory_stats(std::string_view device);
// Frees what traced functions, sessions and models keep between their runs, and gives memory that
// is wholly free back to the device; returns the bytes given back.
std::int64_t trim_memory(std::string_view device);

}  // namespace tandem::config

namespace tandem {
using config::get_soft_device_placement;
using config::set_soft_device_placement;
}  // namespace tandem
