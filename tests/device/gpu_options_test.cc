// The GPUOptions and device_count of TensorFlow sessions, its environment variables, and priorities
// of virtual devices. Every test runs in a process of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "device/device_manager.h"
#include "device/discovery.h"
#include "support/errors.h"
#include "tandem/config.h"
#include "tandem/errors.h"

namespace tandem::gpu_options_test {
namespace {

using testing::error_of;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

config::PhysicalDevice gpu(int index) { return physical_device("GPU", index); }

std::vector<std::string> logical_names() {
  std::vector<std::string> names;
  for (const auto& each : config::list_logical_devices())
    names.push_back(each.name.substr(each.name.rfind("device:") + 7));
  return names;
}
using Names = std::vector<std::string>;

TEST(GpuOptions, VisibleDeviceListMapsPhysicalToLogical) {
  config::set_emulated_gpus(6);
  config::set_gpu_options({.visible_device_list = "5, 3"});
  EXPECT_EQ(config::get_visible_devices("GPU"),
            (std::vector<config::PhysicalDevice>{gpu(5), gpu(3)}));
  config::set_logical_device_configuration(gpu(5), {{.memory_limit = 100}});
  config::set_logical_device_configuration(gpu(3), {{.memory_limit = 200}});
  EXPECT_EQ(config::get_memory_info("GPU:0").limit, 100 * kMiB);
  EXPECT_EQ(config::get_memory_info("GPU:1").limit, 200 * kMiB);
  config::set_gpu_options({.visible_device_list = "5,3"});  // the same again
  EXPECT_EQ(error_of<RuntimeError>([] { config::set_gpu_options({.visible_device_list = "3,5"}); }),
            "Visible devices cannot be modified after being initialized (by get_memory_info). Call "
            "config::set_visible_devices before the first operation and before anything that lists "
            "logical devices.");
}

TEST(GpuOptions, InvalidDeviceListsAreRefused) {
  config::set_emulated_gpus(2);
  const auto refused = [](const char* list) {
    return error_of<InvalidArgumentError>(
        [&] { config::set_gpu_options({.visible_device_list = list}); });
  };
  EXPECT_EQ(refused("0,7"),
            "Invalid visible device index: 7 (visible_device_list is '0,7', there are 2 GPUs)");
  for (const char* bad : {"-1", "0,", ",", "zero", "0 1", "0x1", "99999999999999999999"})
    EXPECT_EQ(refused(bad).rfind("Invalid visible device index: ", 0), 0u) << bad;
  EXPECT_EQ(refused("1,0,1"), "visible_device_list contained a duplicate entry: 1,0,1");
}

TEST(GpuOptions, GrowthAndFractionOfEveryGpu) {
  config::set_emulated_gpus(2, 200);
  config::set_gpu_options({.allow_growth = true, .per_process_gpu_memory_fraction = 0.4});
  EXPECT_TRUE(config::get_memory_growth(gpu(0)) && config::get_memory_growth(gpu(1)));
  Allocator& memory = DeviceManager::get().devices(DeviceType::kGpu, "test").back()->allocator();
  memory.allocate(1);
  EXPECT_EQ(memory.stats().bytes_reserved, 2 * kMiB);
  EXPECT_EQ(memory.stats().bytes_limit, 80 * kMiB);
}

TEST(GpuOptions, AFailureChangesNothing) {
  config::set_emulated_gpus(2);
  EXPECT_THROW(config::set_gpu_options({.allow_growth = true,
                                        .per_process_gpu_memory_fraction = 2.0,
                                        .visible_device_list = "1"}),
               InvalidArgumentError);
  EXPECT_FALSE(config::get_memory_growth(gpu(0)));
  EXPECT_EQ(config::get_visible_devices("GPU").size(), 2u);
  EXPECT_THROW(config::set_device_count({{"CPU", 3}, {"TPU", 1}}), InvalidArgumentError);
  EXPECT_EQ(logical_names(), (Names{"CPU:0", "GPU:0", "GPU:1"}));
}

TEST(DeviceCount, CpusAndTheFirstGpus) {
  config::set_emulated_gpus(3);
  config::set_visible_devices({gpu(2), gpu(0)}, "GPU");
  config::set_logical_device_configuration(gpu(2), {{.memory_limit = 10}});
  config::set_device_count({{"CPU", 2}, {"GPU", 1}});
  EXPECT_EQ(logical_names(), (Names{"CPU:0", "CPU:1", "GPU:0"}));
  EXPECT_EQ(config::get_memory_info("GPU:0").limit, 10 * kMiB);  // the first VISIBLE one
  config::set_device_count({{"CPU", 2}, {"GPU", 1}});            // the same again
  EXPECT_EQ(error_of<RuntimeError>([] {
              config::set_device_count({{"GPU", 0}});
            }),
            "Visible devices cannot be modified after being initialized (by list_logical_devices). "
            "Call config::set_device_count before the first operation and before anything that "
            "lists logical devices.");
  EXPECT_EQ(error_of<RuntimeError>([] {
              config::set_device_count({{"CPU", 3}});
            }).rfind("Virtual devices cannot be modified after being initialized (by", 0),
            0u);
}

TEST(DeviceCount, ACountAboveTheNumberOfDevicesMeansAll) {
  config::set_emulated_gpus(2);
  config::set_device_count({{"GPU", 7}});
  EXPECT_EQ(logical_names(), (Names{"CPU:0", "GPU:0", "GPU:1"}));
  config::set_device_count({{"GPU", 2}});  // the same value
}

TEST(DeviceCount, NoCpuHidesIt) {
  config::set_emulated_gpus(1);
  config::set_device_count({{"CPU", 0}});
  config::set_device_count({{"CPU", 1}});
  config::set_device_count({{"CPU", 0}, {"GPU", 1}});
  EXPECT_EQ(logical_names(), (Names{"GPU:0"}));
  EXPECT_EQ(DeviceManager::get().host().index(), 0);  // host data stays on the first CPU
}

TEST(DeviceCount, InvalidCountsAreRefused) {
  const auto refused = [](const char* type, int count) {
    return error_of<InvalidArgumentError>([&] { config::set_device_count({{type, count}}); });
  };
  EXPECT_EQ(refused("TPU", 1), "[set_device_count] expected type CPU or GPU, got 'TPU'");
  EXPECT_EQ(refused("CPU", -1), "[set_device_count] expected 0 to 1024 CPUs, got -1");
  EXPECT_EQ(refused("GPU", 1025), "[set_device_count] expected 0 to 1024 GPUs, got 1025");
}

TEST(ForcedGrowth, TensorFlowsVariableCountsUnlessOursIsSet) {
  config::set_emulated_gpus(1);
  setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true", 1);
  EXPECT_TRUE(config::get_memory_growth(gpu(0)));
  setenv("TANDEM_FORCE_GPU_ALLOW_GROWTH", "false", 1);
  EXPECT_FALSE(config::get_memory_growth(gpu(0)));
  unsetenv("TANDEM_FORCE_GPU_ALLOW_GROWTH");
  setenv("TF_FORCE_GPU_ALLOW_GROWTH", "perhaps", 1);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { config::list_logical_devices(); }),
            "[Environment] TF_FORCE_GPU_ALLOW_GROWTH: expected true or false, got 'perhaps'");
  EXPECT_FALSE(DeviceManager::get().initialized());
}

TEST(ForcedGrowth, HoldsForVirtualDevicesToo) {
  config::set_emulated_gpus(1);
  config::set_logical_device_configuration(gpu(0), {{.memory_limit = 64}, {.memory_limit = 64}});
  setenv("TF_FORCE_GPU_ALLOW_GROWTH", "1", 1);
  Allocator& memory = DeviceManager::get().devices(DeviceType::kGpu, "test").back()->allocator();
  memory.allocate(1);
  EXPECT_EQ(memory.stats().bytes_reserved, 2 * kMiB);
}

TEST(VirtualDevices, DoNotOutgrowAGpuThatBecameSmaller) {
  config::set_emulated_gpus(1, 512);
  config::set_logical_device_configuration(gpu(0), {{.memory_limit = 200}, {.memory_limit = 200}});
  config::set_emulated_gpus(1, 300);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { config::list_logical_devices(); }),
            "[set_logical_device_configuration] expected limits of at most 300 MiB together on "
            "/physical_device:GPU:0, got 400");
}

TEST(VirtualDevicePriority, InTheRangeOfTheGpu) {
  config::set_emulated_gpus(1);
  const auto refused = [](int priority) {
    return error_of<InvalidArgumentError>([&] {
      config::set_logical_device_configuration(
          gpu(0), {{.memory_limit = 1, .experimental_priority = 0},
                   {.memory_limit = 1, .experimental_priority = priority}});
    });
  };
  EXPECT_EQ(refused(1),
            "Priority 1 is outside the range of supported priorities [-5, 0] for virtual device 1 "
            "on /physical_device:GPU:0");
  EXPECT_EQ(refused(-6).rfind("Priority -6 is outside", 0), 0u);
  EXPECT_EQ(refused(-5), "no error");
  EXPECT_EQ(logical_names(), (Names{"CPU:0", "GPU:0", "GPU:1"}));
}

}  // namespace
}  // namespace tandem::gpu_options_test
