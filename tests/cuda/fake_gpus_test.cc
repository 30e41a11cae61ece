// The backend's host code on a fake of CUDA: discovery, contexts, limits, priorities, peers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/fake_cuda.h"
#include "device/cuda/module/check.h"
#include "device/cuda/module/cuda_device.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/discovery.h"
#include "device/gpu_conformance.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

using cuda::find_gpus;
using fake_cuda::set_gpus;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

INSTANTIATE_TEST_SUITE_P(FakeCuda, GpuConformance,
                         ::testing::Values(TestGpus{.name = "two",
                                                    .find =
                                                        [] {
                                                          set_gpus({{}, {}});
                                                          return find_gpus();
                                                        }},
                                           TestGpus{.name = "one",
                                                    .find =
                                                        [] {
                                                          set_gpus({{}});
                                                          return find_gpus();
                                                        }}),
                         name_of_gpus);

LogicalGpuOptions options(int id, std::int64_t memory = 64 * kMiB) {
  return {.name = local_device_name("GPU", id), .memory_limit = memory};
}

TEST(FakeGpus, AreFoundWithoutAContext) {
  set_gpus({{.name = "First", .memory = std::size_t{80} << 30, .major = 8}, {.name = "Second"}});
  const PhysicalGpus gpus = find_gpus();
  ASSERT_EQ(gpus.size(), 2u);
  const config::DeviceDetails first = gpus[0]->details();
  EXPECT_EQ(first.device_name, "First");
  EXPECT_EQ(first.memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(first.pci_bus_id, "0000:01:00.0");
  EXPECT_EQ(first.compute_capability, (std::pair{8, 0}));
  EXPECT_FALSE(first.emulated);
  EXPECT_EQ(gpus[1]->priority_range().most_urgent, -5);
  EXPECT_EQ(gpus[1]->memory_limit(0.5), std::int64_t{8} << 30);
  EXPECT_FALSE(fake_cuda::gpu(0).has_context);
  EXPECT_FALSE(fake_cuda::gpu(1).has_context);

  const auto device = gpus[1]->make_device(options(0));
  EXPECT_FALSE(fake_cuda::gpu(0).has_context) << "of a GPU that is not used";
  EXPECT_TRUE(fake_cuda::gpu(1).has_context);
  EXPECT_EQ(fake_cuda::gpu(1).in_use, 0u) << "memory is taken when it is asked for";
}

TEST(FakeGpus, TheReserveDependsOnTheGpu) {
  set_gpus({{.memory = std::size_t{16} << 30, .major = 8},
            {.memory = std::size_t{16} << 30, .major = 9},
            {.memory = std::size_t{1} << 30, .major = 9, .in_use = std::size_t{100} << 20}});
  const PhysicalGpus gpus = find_gpus();
  EXPECT_EQ(gpus[0]->memory_limit(0), (16384 - 1536) * kMiB);
  EXPECT_EQ(gpus[1]->memory_limit(0), (16384 - 1800) * kMiB);
  EXPECT_EQ(gpus[2]->memory_limit(0), (1024 - 100 - 225) * kMiB);
}

TEST(FakeGpus, OnesThatAreTooOldAreLeftOut) {
  set_gpus({{.name = "Old", .major = 7, .minor = 5}, {.name = "New", .major = 12}});
  const PhysicalGpus gpus = find_gpus();
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0]->details().device_name, "New");
}

TEST(FakeGpus, NoneIsNoError) {
  set_gpus({});
  EXPECT_TRUE(find_gpus().empty());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

std::string failure_of_discovery(cudaError_t error) {
  set_gpus({{}}, error);
  try {
    find_gpus();
  } catch (const UnavailableError& failure) {
    return failure.what();
  }
  return "no error";
}

TEST(FakeGpus, ABrokenDriverIsAClearError) {
  const std::string old = failure_of_discovery(cudaErrorInsufficientDriver);
  EXPECT_NE(old.find("the NVIDIA driver supports CUDA 12.2"), std::string::npos) << old;
  EXPECT_NE(old.find("install a newer driver"), std::string::npos) << old;
  const std::string broken = failure_of_discovery(cudaErrorSystemDriverMismatch);
  EXPECT_NE(broken.find("does not work: something is wrong"), std::string::npos) << broken;
}

TEST(FakeGpus, AForkedProcessGetsAClearError) {
  set_gpus({{}});
  const PhysicalGpus gpus = find_gpus();
  const pid_t child = fork();
  if (child == 0) {
    try {
      gpus[0]->make_device(options(0));
    } catch (const FailedPreconditionError&) {
      _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(FakeGpus, LogicalDevicesShareAGpu) {
  set_gpus({{}});
  const PhysicalGpus gpus = find_gpus();
  LogicalGpuOptions urgent = options(0);
  urgent.priority = -3;
  const auto a = gpus[0]->make_device(urgent);
  EXPECT_EQ(fake_cuda::gpu(0).last_priority, -3);
  const auto b = gpus[0]->make_device(options(1));
  EXPECT_EQ(fake_cuda::gpu(0).last_priority, 0);
  EXPECT_NE(a->stream().native_handle(), b->stream().native_handle());
  void* of_a = a->allocator().allocate(100);
  EXPECT_EQ(fake_cuda::gpu(0).in_use, std::size_t{64} << 20);
  void* of_b = b->allocator().allocate(100);
  EXPECT_EQ(fake_cuda::gpu(0).in_use, std::size_t{128} << 20);
  a->allocator().deallocate(of_a);
  b->allocator().deallocate(of_b);
  EXPECT_EQ(a->allocator().trim(), std::size_t{64} << 20);
  EXPECT_EQ(fake_cuda::gpu(0).in_use, std::size_t{64} << 20);
}

TEST(FakeGpus, ReachEachOtherWhereTheyCan) {
  set_gpus({{}, {.reaches_peers = false}, {}});
  const PhysicalGpus gpus = find_gpus();
  const auto a = gpus[0]->make_device(options(0)), b = gpus[1]->make_device(options(1)),
             c = gpus[2]->make_device(options(2));
  EXPECT_EQ(fake_cuda::gpu(0).peers, (std::vector{1, 2}));
  EXPECT_EQ(fake_cuda::gpu(1).peers, std::vector<int>());
  EXPECT_EQ(fake_cuda::gpu(2).peers, (std::vector{0, 1}));
}

// Less memory is free than when the limit was set: the allocator backs off.
TEST(FakeGpus, MemoryThatTheDriverRefusesIsAskedForAgainInPart) {
  set_gpus({{.memory = std::size_t{100} << 20, .in_use = std::size_t{20} << 20}});
  const PhysicalGpus gpus = find_gpus();
  const auto device = gpus[0]->make_device(options(0, 100 * kMiB));
  void* memory = device->allocator().allocate(10 << 20);
  EXPECT_NE(memory, nullptr);
  EXPECT_LE(device->allocator().stats().bytes_reserved, 80 * kMiB);
  EXPECT_GT(device->allocator().stats().bytes_reserved, 70 * kMiB);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  device->allocator().deallocate(memory);
}

TEST(FakeGpus, ErrorsAreTyped) {
  cuda::check(cudaSuccess, "call");
  EXPECT_THROW(cuda::check(cudaErrorMemoryAllocation, "call"), ResourceExhaustedError);
  EXPECT_THROW(cuda::check(cudaErrorIllegalAddress, "call"), InternalError);
  EXPECT_THROW(cuda::check(cudaErrorECCUncorrectable, "call"), UnavailableError);
}

}  // namespace
}  // namespace tandem
