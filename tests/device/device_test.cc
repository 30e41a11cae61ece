// Tests specific to the CPU or an emulated GPU; the others are in gpu_conformance.cc.
#include "device/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/cpu/cpu_device.h"
#include "device/discovery.h"
#include "device/emulated/emulated_gpu.h"
#include "tandem/errors.h"

namespace tandem::device_test {
namespace {

using namespace std::chrono_literals;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

LogicalGpuOptions gpu_options(int id, std::int64_t memory = 64 * kMiB) {
  return {.name = local_device_name("GPU", id), .memory_limit = memory};
}

void hold_up(DeviceImpl& device, std::atomic<bool>& open) {
  device.stream().enqueue([&open] {
    while (!open) std::this_thread::sleep_for(100us);
  });
}

TEST(DeviceImpl, SaysWhatItIs) {
  CpuDevice cpu(local_device_name("CPU", 1), 3);
  EXPECT_EQ(cpu.full_name(), "/job:localhost/replica:0/task:0/device:CPU:1");
  EXPECT_EQ(cpu.type(), DeviceType::kCpu);
  EXPECT_EQ(cpu.backend(), DeviceBackend::kCpu);
  EXPECT_EQ(cpu.index(), 1);
  EXPECT_EQ(cpu.intra_op_threads(), 3);
  EXPECT_TRUE(cpu.host_accessible());
  EXPECT_EQ(cpu.stream().execution(), Stream::Execution::kInline);
  EXPECT_EQ(cpu.allocator().name(), "CPU_1_bfc");
  EmulatedGpu gpu(gpu_options(2));
  EXPECT_EQ(gpu.backend(), DeviceBackend::kEmulatedGpu);
  EXPECT_EQ(gpu.stream().execution(), Stream::Execution::kDeferred);
}

TEST(DeviceImpl, InlineStreamRunsAtOnce) {
  InlineStream stream;
  int value = 0;
  stream.enqueue([&] { value = 1; });
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(stream.record().done());
  EXPECT_THROW(stream.enqueue([] { throw NotFoundError("now"); }), NotFoundError);
  stream.synchronize();
}

TEST(DeviceImpl, ExhaustedMemoryWaitsForDeferredWorkThatHoldsSome) {
  EmulatedGpu gpu(gpu_options(0, 8 * kMiB));
  for (int i = 0; i < 20; ++i) {
    void* memory = gpu.allocator().allocate(5 << 20);
    ASSERT_NE(memory, nullptr);
    gpu.stream().enqueue([&gpu, memory] {
      std::this_thread::sleep_for(1ms);
      gpu.allocator().deallocate(memory);
    });
  }
}

TEST(DeviceImpl, RegionsAreReleasedAfterTheWorkThatUsesThem) {
  EmulatedGpu gpu(
      {.name = local_device_name("GPU", 0), .memory_limit = 64 * kMiB, .allow_growth = true});
  std::atomic<bool> open{false};
  void* memory = gpu.allocator().allocate(1 << 20);
  hold_up(gpu, open);
  gpu.stream().enqueue([memory] { std::memset(memory, 1, 1 << 20); });
  gpu.allocator().deallocate(memory);
  EXPECT_EQ(gpu.allocator().trim(), std::size_t{2} << 20);
  open = true;
  gpu.stream().synchronize();  // would crash if the region had been released
}

}  // namespace
}  // namespace tandem::device_test
