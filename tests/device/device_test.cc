// Memory, copies and their order on the devices of both backends.
#include "device/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/discovery.h"
#include "device/emulated/emulated_gpu.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

LogicalGpuOptions gpu_options(int id, std::int64_t memory = 64 * kMiB) {
  return {.name = local_device_name("GPU", id), .memory_limit = memory};
}

std::vector<int> numbers(std::size_t count, int first = 0) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Memory of a device, as ints.
struct Block {
  Block(Device& on, std::size_t ints)
      : device(on), bytes(ints * sizeof(int)), data(on.allocator().allocate(bytes)) {
    EXPECT_NE(data, nullptr);
  }
  ~Block() { device.allocator().deallocate(data); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::vector<int> read() {
    std::vector<int> host(bytes / sizeof(int));
    device.copy_to_host(host.data(), data, bytes);
    device.stream().synchronize();
    return host;
  }

  Device& device;
  std::size_t bytes;
  void* data;
};

void hold_up(Device& device, std::atomic<bool>& open) {
  device.stream().enqueue([&open] {
    while (!open) std::this_thread::sleep_for(100us);
  });
}

TEST(Device, SaysWhatItIs) {
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
  EXPECT_EQ(gpu.full_name(), "/job:localhost/replica:0/task:0/device:GPU:2");
  EXPECT_EQ(gpu.type(), DeviceType::kGpu);
  EXPECT_EQ(gpu.backend(), DeviceBackend::kEmulatedGpu);
  EXPECT_FALSE(gpu.host_accessible());
  EXPECT_EQ(gpu.stream().execution(), Stream::Execution::kDeferred);
  EXPECT_EQ(gpu.allocator().name(), "GPU_2_bfc");
}

TEST(Device, InlineStreamRunsAtOnce) {
  InlineStream stream;
  int value = 0;
  stream.enqueue([&] { value = 1; });
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(stream.record().done());
  EXPECT_THROW(stream.enqueue([] { throw NotFoundError("now"); }), NotFoundError);
  stream.synchronize();
}

TEST(Device, CopiesOfAllSizesGoInAndOut) {
  CpuDevice cpu(local_device_name("CPU", 0), 1);
  EmulatedGpu gpu(gpu_options(0));
  for (Device* device : {static_cast<Device*>(&cpu), static_cast<Device*>(&gpu)})
    for (const std::size_t count : {1u, 1000u, 16'384u, 16'385u, 1'000'000u}) {
      Block block(*device, count);
      std::vector<int> host = numbers(count);
      device->copy_from_host(block.data, host.data(), block.bytes);
      std::fill(host.begin(), host.end(), -1);  // the host may reuse its memory at once
      EXPECT_EQ(block.read(), numbers(count));
    }
  gpu.copy_from_host(nullptr, nullptr, 0);
  gpu.copy_to_host(nullptr, nullptr, 0);
}

TEST(Device, SmallCopiesInDoNotWaitForTheStream) {
  EmulatedGpu gpu(gpu_options(0));
  std::atomic<bool> open{false};
  Block block(gpu, 1000);
  std::vector<int> host = numbers(1000);
  hold_up(gpu, open);
  gpu.copy_from_host(block.data, host.data(), block.bytes);  // returns although the stream is busy
  host.assign(1000, -1);
  open = true;
  EXPECT_EQ(block.read(), numbers(1000));
}

TEST(Device, CopyBetweenEveryPairOfDevices) {
  CpuDevice cpu0(local_device_name("CPU", 0), 1), cpu1(local_device_name("CPU", 1), 1);
  EmulatedGpu gpu0(gpu_options(0)), gpu1(gpu_options(1));
  const std::vector<Device*> devices = {&cpu0, &cpu1, &gpu0, &gpu1};
  int first = 0;
  for (Device* from : devices)
    for (Device* to : devices) {
      first += 1000;
      const std::vector<int> values = numbers(50'000, first);
      Block source(*from, values.size()), target(*to, values.size());
      from->copy_from_host(source.data, values.data(), source.bytes);
      copy_between(*to, target.data, *from, source.data, source.bytes);
      if (to->host_accessible()) {  // complete on return
        EXPECT_EQ(std::memcmp(target.data, values.data(), target.bytes), 0);
      }
      EXPECT_EQ(target.read(), values) << from->full_name() << " to " << to->full_name();
    }
  copy_between(gpu0, nullptr, cpu0, nullptr, 0);
}

TEST(Device, APeerCopyWaitsForWorkOnBothAndBothWaitForIt) {
  EmulatedGpu a(gpu_options(0)), b(gpu_options(1));
  Block source(a, 1), target(b, 1);
  const int one = 1, two = 2;
  int seen_before = 0;
  std::atomic<bool> open_a{false}, open_b{false};
  a.copy_from_host(source.data, &one, sizeof(int));
  b.copy_from_host(target.data, &two, sizeof(int));
  hold_up(a, open_a);
  hold_up(b, open_b);
  b.copy_to_host(&seen_before, target.data, sizeof(int));  // before the copy
  copy_between(b, target.data, a, source.data, sizeof(int));
  a.copy_from_host(source.data, &two, sizeof(int));  // after the copy
  const Event copied = b.stream().record(), overwritten = a.stream().record();
  open_b = true;
  EXPECT_FALSE(copied.done());  // a is still at work
  open_a = true;
  EXPECT_EQ(target.read(), std::vector<int>{1});
  EXPECT_EQ(seen_before, 2);
  overwritten.wait();
  EXPECT_EQ(source.read(), std::vector<int>{2});
}

TEST(Device, OverwritingTheSourceWaitsForThePeerCopy) {
  EmulatedGpu a(gpu_options(0)), b(gpu_options(1));
  Block source(a, 1), target(b, 1);
  const int one = 1, two = 2;
  std::atomic<bool> open{false};
  a.copy_from_host(source.data, &one, sizeof(int));
  hold_up(b, open);
  copy_between(b, target.data, a, source.data, sizeof(int));
  a.copy_from_host(source.data, &two, sizeof(int));
  const Event overwritten = a.stream().record();
  std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(overwritten.done());
  open = true;
  EXPECT_EQ(target.read(), std::vector<int>{1});
  EXPECT_EQ(source.read(), std::vector<int>{2});
}

TEST(Device, OppositeCopiesOfTwoThreadsDoNotLock) {
  EmulatedGpu a(gpu_options(0)), b(gpu_options(1));
  Block a1(a, 100), a2(a, 100), b1(b, 100), b2(b, 100);
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) copy_between(a, a1.data, b, b1.data, a1.bytes);
  });
  for (int i = 0; i < 500; ++i) copy_between(b, b2.data, a, a2.data, a2.bytes);
  other.join();
  a.stream().synchronize();
  b.stream().synchronize();
}

TEST(Device, AFailedKernelIsThrownByTheCopyOut) {
  CpuDevice cpu(local_device_name("CPU", 0), 1);
  EmulatedGpu gpu(gpu_options(0));
  Block source(gpu, 1), target(cpu, 1);
  gpu.stream().enqueue([] { throw InvalidArgumentError("[Op] went wrong"); });
  EXPECT_THROW(copy_between(cpu, target.data, gpu, source.data, sizeof(int)), InvalidArgumentError);
  copy_between(cpu, target.data, gpu, source.data, sizeof(int));
}

TEST(Device, EmulatedMemoryIsBounded) {
  EmulatedGpu gpu(gpu_options(0, 8 * kMiB));
  EXPECT_EQ(gpu.allocator().stats().bytes_limit, 8 * kMiB);
  EXPECT_EQ(gpu.allocator().stats().bytes_reserved, 0);
  void* some = gpu.allocator().allocate(5 << 20);
  EXPECT_EQ(gpu.allocator().stats().bytes_reserved, 8 * kMiB);  // no growth: all at first use
  EXPECT_EQ(gpu.allocator().allocate(5 << 20), nullptr);        // at once: nobody could free any
  gpu.allocator().deallocate(some);
}

TEST(Device, ExhaustedMemoryWaitsForDeferredWorkThatHoldsSome) {
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

TEST(Device, RegionsGoBackAfterTheWorkThatUsesThem) {
  EmulatedGpu gpu(
      {.name = local_device_name("GPU", 0), .memory_limit = 64 * kMiB, .allow_growth = true});
  std::atomic<bool> open{false};
  void* memory = gpu.allocator().allocate(1 << 20);
  hold_up(gpu, open);
  gpu.stream().enqueue([memory] { std::memset(memory, 1, 1 << 20); });
  gpu.allocator().deallocate(memory);
  EXPECT_EQ(gpu.allocator().trim(), std::size_t{2} << 20);
  open = true;
  gpu.stream().synchronize();  // would crash if the region were gone already
}

}  // namespace
}  // namespace tandem
