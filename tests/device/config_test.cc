// tandem/config.h: discovery, settings and their errors, memory statistics. Every test runs in a
// process of its own.
#include "tandem/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "core/parallel.h"
#include "device/device_manager.h"
#include "device/discovery.h"
#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::config_test {
namespace {

using testing::error_of;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
const config::PhysicalDevice kCpu{"/physical_device:CPU:0", "CPU"};
const config::PhysicalDevice kGpu0{"/physical_device:GPU:0", "GPU"};
const config::PhysicalDevice kGpu1{"/physical_device:GPU:1", "GPU"};
using Physical = std::vector<config::PhysicalDevice>;

template <class F>
std::string refused(F&& call) {
  return error_of<InvalidArgumentError>(call);
}
template <class F>
std::string too_late(F&& call) {
  return error_of<RuntimeError>(call);
}

std::vector<std::string> logical_names(std::string_view type = {}) {
  std::vector<std::string> names;
  for (const auto& each : config::list_logical_devices(type))
    names.push_back(each.name.substr(each.name.rfind("device:") + 7));
  return names;
}
using Names = std::vector<std::string>;

DeviceImpl& device(const char* name) {
  DeviceImpl* found = DeviceManager::get().find(
      *DeviceName::parse_full(std::string("/job:localhost/replica:0/task:0/device:") + name));
  EXPECT_NE(found, nullptr) << name;
  return *found;
}

TEST(Config, WithoutGpusOnlyTheCpuIsListed) {
  unsetenv("TANDEM_EMULATED_GPUS");
  EXPECT_EQ(config::list_physical_devices(), Physical{kCpu});
  EXPECT_TRUE(config::list_physical_devices("GPU").empty());
  EXPECT_TRUE(config::list_physical_devices("TPU").empty());
  EXPECT_FALSE(DeviceManager::get().initialized());
  const auto logical = config::list_logical_devices();
  ASSERT_EQ(logical.size(), 1u);
  EXPECT_EQ(logical[0].name, "/job:localhost/replica:0/task:0/device:CPU:0");
  config::set_logical_cpus(1);  // unchanged
  EXPECT_EQ(logical[0].device_type, "CPU");
  EXPECT_TRUE(DeviceManager::get().initialized());
  EXPECT_EQ(device("CPU:0").intra_op_threads(), available_cores());
}

TEST(Config, DiscoveryInitialisesNothing) {
  config::set_emulated_gpus(2, 512);
  EXPECT_EQ(config::list_physical_devices(), (Physical{kCpu, kGpu0, kGpu1}));
  const config::DeviceDetails gpu = config::get_device_details(kGpu1);
  EXPECT_EQ(gpu.device_name, "Emulated GPU");
  EXPECT_EQ(gpu.memory_bytes, 512 * kMiB);
  EXPECT_TRUE(gpu.emulated);
  EXPECT_FALSE(gpu.pci_bus_id.has_value());
  EXPECT_FALSE(gpu.compute_capability.has_value());
  const config::DeviceDetails cpu = config::get_device_details(kCpu);
  EXPECT_FALSE(cpu.device_name.empty());
  EXPECT_GT(cpu.memory_bytes, 0);
  EXPECT_FALSE(cpu.emulated);
  EXPECT_FALSE(config::get_memory_growth(kGpu0));
  EXPECT_EQ(config::get_visible_devices("GPU"), (Physical{kGpu0, kGpu1}));
  EXPECT_FALSE(DeviceManager::get().initialized());
  EXPECT_EQ(logical_names(), (Names{"CPU:0", "GPU:0", "GPU:1"}));
}

TEST(Config, EmulatedGpusFromTheEnvironment) {
  setenv("TANDEM_EMULATED_GPUS", "3:256", 1);
  EXPECT_EQ(config::list_physical_devices("GPU").size(), 3u);
  EXPECT_EQ(config::get_device_details(kGpu0).memory_bytes, 256 * kMiB);
  setenv("TANDEM_EMULATED_GPUS", "1", 1);
  EXPECT_EQ(config::get_device_details(kGpu0).memory_bytes, 4096 * kMiB);
  setenv("TANDEM_EMULATED_GPUS", "0", 1);
  EXPECT_TRUE(config::list_physical_devices("GPU").empty());
  for (const char* bad : {"two", "-1", "2:", "2:0", "2:x", ":5", "2,3", "1025"}) {
    setenv("TANDEM_EMULATED_GPUS", bad, 1);
    EXPECT_EQ(
        refused([] { config::list_physical_devices(); }),
        "[Environment] TANDEM_EMULATED_GPUS: expected N or N:MiB, with N from 0 to 1024, got '" +
            std::string(bad) + "'");
  }
  config::set_emulated_gpus(2);  // the call overrides the environment
  EXPECT_EQ(config::list_physical_devices("GPU").size(), 2u);
}

TEST(Config, EmulatedGpusOutOfRange) {
  EXPECT_EQ(
      refused([] { config::set_emulated_gpus(-1); }),
      "[set_emulated_gpus] expected 0 to 1024 GPUs of 1 to 1073741824 MiB each, got -1 of 4096");
  EXPECT_THROW(config::set_emulated_gpus(1, 0), InvalidArgumentError);
}

TEST(Config, CudaVisibleDevicesHidesEmulatedGpusToo) {
  const std::pair<const char*, int> table[] = {{"0,1,2,3", 4}, {"1,2", 2}, {"", 0},      {"-1", 0},
                                               {"3,-1,0", 1},  {"4", 0},   {"0,9,1", 1}, {"1,1", 0},
                                               {"GPU-abc", 0}, {"2", 1},   {" 1, 0", 2}};
  for (const auto& [text, count] : table) EXPECT_EQ(visible_count(text, 4), count) << text;
  config::set_emulated_gpus(4);
  setenv("CUDA_VISIBLE_DEVICES", "2,3", 1);
  EXPECT_EQ(config::list_physical_devices("GPU"), (Physical{kGpu0, kGpu1}));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_TRUE(config::list_physical_devices("GPU").empty());
}

TEST(Config, VisibleDevicesKeepTheirGivenOrder) {
  config::set_emulated_gpus(3);
  const config::PhysicalDevice gpu2{"/physical_device:GPU:2", "GPU"};
  config::set_visible_devices({gpu2, kGpu0}, "GPU");
  EXPECT_EQ(config::get_visible_devices("GPU"), (Physical{gpu2, kGpu0}));
  EXPECT_EQ(config::get_visible_devices(), (Physical{kCpu, gpu2, kGpu0}));
  config::set_logical_device_configuration(gpu2, {{.memory_limit = 100}});
  config::set_logical_device_configuration(kGpu0, {{.memory_limit = 200}});
  EXPECT_EQ(logical_names("GPU"), (Names{"GPU:0", "GPU:1"}));
  // in the order in which they were set
  EXPECT_EQ(config::get_memory_info("GPU:0").limit, 100 * kMiB);
  EXPECT_EQ(config::get_memory_info("GPU:1").limit, 200 * kMiB);
}

TEST(Config, InvalidVisibleDevicesAreRefused) {
  config::set_emulated_gpus(1);
  EXPECT_EQ(refused([] { config::set_visible_devices({kGpu1}, "GPU"); }),
            "Unrecognized device: '/physical_device:GPU:1' of type 'GPU'; there are "
            "[/physical_device:CPU:0, /physical_device:GPU:0]");
  EXPECT_EQ(refused([] { config::set_visible_devices({kCpu}, "GPU"); }),
            "Unrecognized device: '/physical_device:CPU:0' is no GPU");
  EXPECT_EQ(refused([] {
              config::set_visible_devices({kGpu0, kGpu0}, "GPU");
            }),
            "[set_visible_devices] expected each device once, got /physical_device:GPU:0 twice");
}

TEST(Config, HiddenDevicesAreNotListed) {
  config::set_emulated_gpus(2);
  config::set_visible_devices({}, "GPU");
  EXPECT_EQ(logical_names(), (Names{"CPU:0"}));
}

TEST(Config, AHiddenCpuStaysTheHost) {
  config::set_emulated_gpus(1);
  config::set_visible_devices({kGpu0});  // for all types: the CPU is hidden
  EXPECT_EQ(logical_names(), (Names{"GPU:0"}));
  EXPECT_EQ(DeviceManager::get().host().full_name(),
            "/job:localhost/replica:0/task:0/device:CPU:0");
}

TEST(Config, MemoryGrowthMustBeEqualOnAllGpus) {
  config::set_emulated_gpus(2);
  config::set_memory_growth(kGpu0, true);
  EXPECT_TRUE(config::get_memory_growth(kGpu0));
  EXPECT_EQ(refused([] { config::list_logical_devices(); }),
            "Memory growth cannot differ between GPU devices");
  EXPECT_FALSE(DeviceManager::get().initialized());  // and the setting can still be corrected
  config::set_memory_growth(kGpu1, true);
  Allocator& memory = (config::list_logical_devices(), device("GPU:1")).allocator();
  memory.allocate(1);
  EXPECT_EQ(memory.stats().bytes_reserved, 2 * kMiB);
  config::set_memory_growth(kGpu0, true);  // no change
  EXPECT_EQ(
      too_late([] { config::set_memory_growth(kGpu0, false); }),
      "Physical devices cannot be modified after being initialized (by list_logical_devices). "
      "Call config::set_memory_growth before the first operation and before anything that "
      "lists logical devices.");
  EXPECT_EQ(refused([] { config::set_memory_growth(kCpu, true); }),
            "Cannot set memory growth on non-GPU and non-Pluggable devices");
  EXPECT_EQ(refused([] { config::get_memory_growth(kCpu); }),
            "[get_memory_growth] expected a GPU, got /physical_device:CPU:0");
}

TEST(Config, WithoutGrowthAllIsTakenAtFirstUse) {
  config::set_emulated_gpus(1, 300);
  Allocator& memory = device("GPU:0").allocator();
  EXPECT_EQ(memory.stats().bytes_reserved, 0);
  memory.allocate(1);
  EXPECT_EQ(memory.stats().bytes_reserved, 300 * kMiB);
}

TEST(Config, ForcedGrowthOverridesTheSetting) {
  config::set_emulated_gpus(2);
  config::set_memory_growth(kGpu1, false);
  setenv("TANDEM_FORCE_GPU_ALLOW_GROWTH", "true", 1);
  EXPECT_TRUE(config::get_memory_growth(kGpu1));
  Allocator& memory = device("GPU:1").allocator();
  memory.allocate(1);
  EXPECT_EQ(memory.stats().bytes_reserved, 2 * kMiB);
}

TEST(Config, FractionOfTheTotal) {
  config::set_emulated_gpus(1, 1000);
  EXPECT_EQ(refused([] { config::set_per_process_gpu_memory_fraction(1.5); }),
            "[set_per_process_gpu_memory_fraction] expected a fraction from 0 to 1, got 1.5");
  EXPECT_THROW(config::set_per_process_gpu_memory_fraction(-0.1), InvalidArgumentError);
  config::set_per_process_gpu_memory_fraction(0.25);
  EXPECT_EQ(config::get_memory_info("GPU:0").limit, 250 * kMiB);
  config::set_per_process_gpu_memory_fraction(0.25);
  EXPECT_EQ(
      too_late([] { config::set_per_process_gpu_memory_fraction(0.5); }),
      "Physical devices cannot be modified after being initialized (by get_memory_info). "
      "Call config::set_per_process_gpu_memory_fraction before the first operation and before "
      "anything that lists logical devices.");
}

TEST(Config, FractionAndVirtualDevicesExcludeEachOther) {
  config::set_emulated_gpus(1);
  config::set_per_process_gpu_memory_fraction(0.5);
  config::set_logical_device_configuration(kGpu0, {{.memory_limit = 128}});
  EXPECT_EQ(
      refused([] { config::list_logical_devices(); }),
      "It's invalid to set per_process_gpu_memory_fraction when virtual devices are configured");
  config::set_per_process_gpu_memory_fraction(0.0);
  EXPECT_EQ(logical_names("GPU"), Names{"GPU:0"});
}

TEST(Config, VirtualGpusHaveTheirOwnLimits) {
  config::set_emulated_gpus(2, 512);
  config::set_logical_device_configuration(kGpu0, {{.memory_limit = 128}, {.memory_limit = 64}});
  EXPECT_EQ(refused([] { config::set_memory_growth(kGpu0, true); }),
            "Cannot set memory growth on device when virtual devices configured");
  config::set_memory_growth(kGpu1, true);  // ignored: there are virtual devices
  EXPECT_EQ(logical_names("GPU"), (Names{"GPU:0", "GPU:1", "GPU:2"}));
  EXPECT_EQ(config::get_memory_info("GPU:0").limit, 128 * kMiB);
  EXPECT_EQ(config::get_memory_info("GPU:1").limit, 64 * kMiB);
  EXPECT_EQ(config::get_memory_info("GPU:2").limit, 512 * kMiB);
  device("GPU:2").allocator().allocate(1);
  EXPECT_EQ(config::get_memory_info("GPU:2").reserved, 512 * kMiB);
  // Setting the same value is allowed, another one is not.
  config::set_logical_device_configuration(kGpu0, {{.memory_limit = 128}, {.memory_limit = 64}});
  EXPECT_EQ(
      too_late([] { config::set_logical_device_configuration(kGpu0, {{.memory_limit = 128}}); }),
      "Virtual devices cannot be modified after being initialized (by list_logical_devices). Call "
      "config::set_logical_device_configuration before the first operation and before anything "
      "that "
      "lists logical devices.");
  EXPECT_EQ(too_late([] {
              config::set_memory_growth(kGpu0, true);
            }).rfind("Physical devices cannot be modified after being initialized", 0),
            0u);
}

// From TensorFlow's guide.
TEST(Config, TwoVirtualGpusOfOneGibibyteFitAnEmulatedGpu) {
  setenv("TANDEM_EMULATED_GPUS", "1", 1);
  config::set_logical_device_configuration(kGpu0, {{.memory_limit = 1024}, {.memory_limit = 1024}});
  EXPECT_EQ(logical_names("GPU"), (Names{"GPU:0", "GPU:1"}));
  EXPECT_NE(device("GPU:1").allocator().allocate(1), nullptr);
}

TEST(Config, InvalidVirtualDevicesAreRefused) {
  config::set_emulated_gpus(1, 512);
  const auto gpu = [](std::vector<config::LogicalDeviceConfiguration> configuration) {
    return refused([&] { config::set_logical_device_configuration(kGpu0, configuration); });
  };
  const auto cpu = [](std::vector<config::LogicalDeviceConfiguration> configuration) {
    return refused([&] { config::set_logical_device_configuration(kCpu, configuration); });
  };
  EXPECT_EQ(gpu({{.memory_limit = 1}, {}}),
            "Setting memory limit is required for GPU virtual devices");
  EXPECT_EQ(gpu({{.memory_limit = 0}}),
            "[set_logical_device_configuration] expected a memory_limit from 1 to 512 MiB on "
            "/physical_device:GPU:0, got 0");
  EXPECT_EQ(gpu({{.memory_limit = 300}, {.memory_limit = 300}}),
            "[set_logical_device_configuration] expected limits of at most 512 MiB together on "
            "/physical_device:GPU:0, got 600");
  EXPECT_EQ(gpu({{.memory_limit = 1, .experimental_priority = 1}, {.memory_limit = 1}}),
            "priority must be specified for all virtual devices");
  EXPECT_EQ(cpu({{.memory_limit = 1}}),
            "Setting memory limit on CPU virtual devices is currently not supported");
  EXPECT_EQ(cpu({{.experimental_priority = 1}}),
            "Setting experimental_priority on CPU virtual  devices is currently not supported");
  EXPECT_EQ(refused([] {
              config::set_logical_device_configuration(kGpu1, {});
            }).rfind("Unrecognized device: '/physical_device:GPU:1'", 0),
            0u);
}

TEST(Config, LogicalCpusShareTheCores) {
  config::set_intra_op_parallelism_threads(6);
  EXPECT_EQ(refused([] { config::set_logical_cpus(0); }),
            "[set_logical_cpus] expected 1 to 1024 CPUs, got 0");
  config::set_logical_cpus(4);
  config::set_emulated_gpus(2);
  EXPECT_EQ(logical_names(), (Names{"CPU:0", "CPU:1", "CPU:2", "CPU:3", "GPU:0", "GPU:1"}));
  EXPECT_EQ(device("CPU:3").intra_op_threads(), 1);
  EXPECT_EQ(device("GPU:1").intra_op_threads(), 3);
  EXPECT_EQ(config::get_intra_op_parallelism_threads(), 6);
  config::set_logical_cpus(4);
  EXPECT_EQ(too_late([] {
              config::set_logical_cpus(2);
            }).rfind("Virtual devices cannot be modified after being initialized (by", 0),
            0u);
  EXPECT_EQ(too_late([] {
              config::set_intra_op_parallelism_threads(2);
            }).rfind("Intra op parallelism cannot be modified after initialization (by", 0),
            0u);
  EXPECT_EQ(too_late([] {
              config::set_emulated_gpus(3);
            }).rfind("Emulated GPUs cannot be modified after being initialized (by", 0),
            0u);
  EXPECT_EQ(refused([] { config::set_intra_op_parallelism_threads(-1); }),
            "[set_intra_op_parallelism_threads] expected 0 or more threads, got -1");
}

TEST(Config, LateErrorsNameTheFirstCall) {
  config::set_emulated_gpus(1);
  DeviceManager::get().initialize("MatMul");
  config::list_logical_devices();
  config::set_visible_devices({kGpu0}, "GPU");  // unchanged
  EXPECT_EQ(too_late([] { config::set_visible_devices({}, "GPU"); }),
            "Visible devices cannot be modified after being initialized (by MatMul). Call "
            "config::set_visible_devices before the first operation and before anything that lists "
            "logical devices.");
}

TEST(Config, MemoryInfoHasCurrentAndPeakBytes) {
  config::set_emulated_gpus(1, 64);
  Allocator& memory = device("GPU:0").allocator();
  void* block = memory.allocate(16 << 20);
  memory.deallocate(memory.allocate(8 << 20));
  for (const char* name : {"GPU:0", "gpu:0", "/gpu:0", "/device:GPU:0",
                           "/job:localhost/replica:0/task:0/device:GPU:0"}) {
    const config::MemoryInfo info = config::get_memory_info(name);
    EXPECT_EQ(info.current, 16 * kMiB) << name;
    EXPECT_EQ(info.peak, 24 * kMiB);
    EXPECT_EQ(info.limit, 64 * kMiB);
    EXPECT_EQ(info.reserved, 64 * kMiB);
    EXPECT_EQ(info.largest_free_block, 48 * kMiB);
    EXPECT_EQ(info.fragmentation, 0.0);
  }
  config::reset_memory_stats("GPU:0");
  EXPECT_EQ(config::get_memory_info("GPU:0").peak, 16 * kMiB);
  EXPECT_EQ(config::trim_memory("GPU:0"), 0);
  device("GPU:0").stream().enqueue([&] { memory.deallocate(block); });
  EXPECT_EQ(config::get_memory_info("GPU:0").current, 0);  // after the current work
  EXPECT_EQ(config::trim_memory("GPU:0"), 64 * kMiB);
  EXPECT_EQ(config::get_memory_info("GPU:0").reserved, 0);
  EXPECT_EQ(config::get_memory_info("CPU:0").current, 0);
  EXPECT_EQ(refused([] { config::get_memory_info("GPU:7"); }),
            "[get_memory_info] expected one of [/job:localhost/replica:0/task:0/device:CPU:0, "
            "/job:localhost/replica:0/task:0/device:GPU:0], got 'GPU:7'");
  EXPECT_EQ(refused([] { config::get_memory_info("gpu7"); }),
            "Could not parse gpu7 into a device specification.");
}

TEST(Config, ManyThreadsInitialiseOnce) {
  config::set_emulated_gpus(3);
  config::set_logical_cpus(2);
  std::vector<DeviceImpl*> firsts(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < firsts.size(); ++i)
    threads.emplace_back([&firsts, i] {
      const auto devices = DeviceManager::get().devices("a thread");
      EXPECT_EQ(devices.size(), 5u);
      EXPECT_EQ(DeviceManager::get().devices(DeviceType::kGpu, "a thread").size(), 3u);
      firsts[i] = devices.back();
      void* memory = devices.back()->allocator().allocate(1000);
      devices.back()->stream().enqueue([=] { devices.back()->allocator().deallocate(memory); });
    });
  for (std::thread& thread : threads) thread.join();
  for (DeviceImpl* each : firsts) EXPECT_EQ(each, firsts[0]);
  for (DeviceImpl* each : DeviceManager::get().devices("test")) each->stream().synchronize();
}

TEST(Config, TheManagerFindsFullNamesOnly) {
  config::set_emulated_gpus(1);
  DeviceManager& manager = DeviceManager::get();
  EXPECT_EQ(manager.find(*DeviceName::parse_full("/gpu:0")), nullptr);
  EXPECT_EQ(manager.find(local_device_name("GPU", 1)), nullptr);
  EXPECT_EQ(manager.find(local_device_name("GPU", 0)), manager.devices("test").back());
  EXPECT_EQ(&manager.host(), manager.devices("test").front());
  EXPECT_EQ(manager.describe_devices(),
            "[/job:localhost/replica:0/task:0/device:CPU:0, "
            "/job:localhost/replica:0/task:0/device:GPU:0]");
}

TEST(Config, LimitsOfConcurrentOperationsAreNotNegative) {
  config::set_inter_op_parallelism_threads(2);
  EXPECT_NE(refused([] { config::set_inter_op_parallelism_threads(-1); }).find("got -1"),
            std::string::npos);
}

TEST(Config, DevicesPrintTheirNames) {
  std::ostringstream out;
  out << kGpu1 << ' ' << config::LogicalDevice{.name = "/device:CPU:0", .device_type = "CPU"};
  EXPECT_EQ(out.str(), "/physical_device:GPU:1 /device:CPU:0");
}

}  // namespace
}  // namespace tandem::config_test
