#include "device/gpu_conformance.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "device/copy.h"
#include "device/copy_ahead.h"
#include "device/cpu/cpu_device.h"
#include "device/discovery.h"
#include "tandem/errors.h"

namespace tandem {

std::unique_ptr<DeviceImpl> GpuConformance::make(int id, LogicalGpuOptions options) {
  options.name = local_device_name("GPU", id);
  return gpus_[std::min(static_cast<std::size_t>(id), gpus_.size() - 1)]->make_device(options);
}

namespace {

using namespace std::chrono_literals;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::vector<int> numbers(std::size_t count, int first = 0) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Device memory as ints.
struct Block {
  Block(DeviceImpl& on, std::size_t ints)
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

  DeviceImpl& device;
  std::size_t bytes;
  void* data;
};

void hold_up(DeviceImpl& device, std::atomic<bool>& open) {
  device.stream().enqueue([&open] {
    while (!open) std::this_thread::sleep_for(100us);
  });
}

TEST_P(GpuConformance, SaysWhatItIs) {
  const auto gpu = make(2);
  EXPECT_EQ(gpu->full_name(), "/job:localhost/replica:0/task:0/device:GPU:2");
  EXPECT_EQ(gpu->type(), DeviceType::kGpu);
  EXPECT_FALSE(gpu->host_accessible());
  EXPECT_NE(gpu->stream().execution(), Stream::Execution::kInline);
  EXPECT_EQ(gpu->allocator().name(), "GPU_2_bfc");
}

TEST_P(GpuConformance, TasksRunInOrder) {
  const auto gpu = make(0);
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) gpu->stream().enqueue([&seen, i] { seen.push_back(i); });
  gpu->stream().synchronize();
  EXPECT_EQ(seen, numbers(100));
}

TEST_P(GpuConformance, EventsTellHowFarTheStreamIs) {
  const auto gpu = make(0);
  std::atomic<bool> open{false};
  const StreamEvent before = gpu->stream().record();
  before.wait();
  EXPECT_TRUE(before.done());
  hold_up(*gpu, open);
  const StreamEvent after = gpu->stream().record();
  EXPECT_FALSE(after.done());
  EXPECT_TRUE(before.done());
  open = true;
  after.wait();
  EXPECT_TRUE(after.done());
}

TEST_P(GpuConformance, AStreamWaitsForAnothersEvent) {
  const auto a = make(0), b = make(1);
  std::atomic<bool> open{false};
  std::atomic<int> steps{0};
  hold_up(*a, open);
  a->stream().enqueue([&] { steps = 1; });
  b->stream().wait(a->stream().record());
  int seen = 0;
  b->stream().enqueue([&] { seen = steps; });
  EXPECT_FALSE(b->stream().record().done());
  open = true;
  b->stream().synchronize();
  EXPECT_EQ(seen, 1);
}

TEST_P(GpuConformance, AFailureIsThrownOnceByWhatWaits) {
  const auto gpu = make(0);
  const StreamEvent before = gpu->stream().record();
  gpu->stream().enqueue([] { throw NotFoundError("first"); });
  gpu->stream().enqueue([] { throw InvalidArgumentError("second"); });
  const StreamEvent after = gpu->stream().record();
  before.wait();  // before the failure
  EXPECT_THROW(after.wait(), NotFoundError);
  after.wait();
  gpu->stream().synchronize();
}

TEST_P(GpuConformance, CopiesOfAllSizesGoInAndOut) {
  const auto gpu = make(0);
  for (const std::size_t count : {1u, 1000u, 16'384u, 16'385u, 1'000'000u, 7'000'001u}) {
    Block block(*gpu, count);
    std::vector<int> host = numbers(count);
    gpu->copy_from_host(block.data, host.data(), block.bytes);
    std::fill(host.begin(), host.end(), -1);  // the host may reuse its memory at once
    EXPECT_TRUE(block.read() == numbers(count)) << count;
  }
  gpu->copy_from_host(nullptr, nullptr, 0);
  gpu->copy_to_host(nullptr, nullptr, 0);
}

TEST_P(GpuConformance, SmallCopiesDoNotWaitForTheStream) {
  const auto gpu = make(0);
  std::atomic<bool> open{false};
  Block block(*gpu, 1000);
  std::vector<int> host = numbers(1000), out(1000);
  hold_up(*gpu, open);
  for (int i = 0; i < 50; ++i) {  // all return although the stream is busy
    gpu->copy_from_host(block.data, host.data(), block.bytes);
    gpu->copy_to_host(out.data(), block.data, block.bytes);
  }
  host.assign(1000, -1);
  open = true;
  gpu->stream().synchronize();
  EXPECT_EQ(out, numbers(1000));
}

// As a batch prefetcher does.
CopiesAhead copy_ahead(Block& block, const std::vector<int>& values) {
  CopiesAhead copies;
  const CopyAheadScope scope(copies);
  host_to_device(block.device, block.data, values.data(), block.bytes);
  return copies;
}

TEST_P(GpuConformance, CopiesAheadGoBesideWhatComesLater) {
  const auto gpu = make(0);
  std::atomic<bool> open{false};
  for (const std::size_t count : {1000u, 1'000'000u}) {
    Block block(*gpu, count);
    std::vector<int> host = numbers(count), seen(count);
    open = false;
    Stream& stream = gpu->start_copy_ahead();
    gpu->copy_from_host_ahead(block.data, host.data(), block.bytes);
    std::fill(host.begin(), host.end(), -1);  // the host may reuse its memory at once
    const StreamEvent copied = stream.record();
    hold_up(*gpu, open);
    copied.wait();
    open = true;
    EXPECT_TRUE(block.read() == numbers(count)) << count;
  }
  gpu->copy_from_host_ahead(nullptr, nullptr, 0);
}

TEST_P(GpuConformance, CopiesAheadRunAfterEarlierUsersOfTheMemory) {
  const auto gpu = make(0);
  std::atomic<bool> open{false};
  Block block(*gpu, 1'000'000);
  gpu->copy_from_host(block.data, numbers(1'000'000, 1).data(), block.bytes);
  std::vector<int> before(1000);
  hold_up(*gpu, open);
  gpu->copy_to_host(before.data(), block.data, 1000 * sizeof(int));
  CopiesAhead copies = copy_ahead(block, numbers(1'000'000));
  open = true;
  copies.join();
  EXPECT_TRUE(block.read() == numbers(1'000'000));
  EXPECT_EQ(before, numbers(1000, 1));
}

TEST_P(GpuConformance, CopiesAheadAreWaitedForWithoutJoin) {
  const auto gpu = make(0);
  Block block(*gpu, 1'000'000);
  copy_ahead(block, numbers(1'000'000));
  EXPECT_TRUE(block.read() == numbers(1'000'000));
}

TEST_P(GpuConformance, AFailureBeforeACopyAheadIsThrownByWhatWaitsForTheFailed) {
  const auto gpu = make(0);
  Block block(*gpu, 1000);
  gpu->stream().enqueue([] { throw NotFoundError("a kernel"); });
  const StreamEvent failed = gpu->stream().record();
  Stream& stream = gpu->start_copy_ahead();
  gpu->copy_from_host_ahead(block.data, numbers(1000).data(), block.bytes);
  stream.synchronize();
  EXPECT_THROW(failed.wait(), NotFoundError);
  EXPECT_TRUE(block.read() == numbers(1000));
}

TEST_P(GpuConformance, CopyBetweenEveryPairOfDevices) {
  CpuDevice cpu0(local_device_name("CPU", 0), 1), cpu1(local_device_name("CPU", 1), 1);
  const auto gpu0 = make(0), gpu1 = make(1);
  const std::vector<DeviceImpl*> devices = {&cpu0, &cpu1, gpu0.get(), gpu1.get()};
  int first = 0;
  for (DeviceImpl* from : devices)
    for (DeviceImpl* to : devices) {
      first += 1000;
      const std::vector<int> values = numbers(50'000, first);
      Block source(*from, values.size()), target(*to, values.size());
      from->copy_from_host(source.data, values.data(), source.bytes);
      copy_between(*to, target.data, *from, source.data, source.bytes);
      if (to->host_accessible()) {  // complete on return
        EXPECT_EQ(std::memcmp(target.data, values.data(), target.bytes), 0);
      }
      EXPECT_TRUE(target.read() == values) << from->full_name() << " to " << to->full_name();
    }
  copy_between(*gpu0, nullptr, cpu0, nullptr, 0);
}

TEST_P(GpuConformance, APeerCopyWaitsForWorkOnBothAndBothWaitForIt) {
  const auto a = make(0), b = make(1);
  Block source(*a, 1), target(*b, 1);
  const int one = 1, two = 2;
  int seen_before = 0;
  std::atomic<bool> open_a{false}, open_b{false};
  a->copy_from_host(source.data, &one, sizeof(int));
  b->copy_from_host(target.data, &two, sizeof(int));
  hold_up(*a, open_a);
  hold_up(*b, open_b);
  b->copy_to_host(&seen_before, target.data, sizeof(int));  // before the copy
  copy_between(*b, target.data, *a, source.data, sizeof(int));
  a->copy_from_host(source.data, &two, sizeof(int));  // after the copy
  const StreamEvent copied = b->stream().record(), overwritten = a->stream().record();
  open_b = true;
  EXPECT_FALSE(copied.done());  // a is still at work
  open_a = true;
  EXPECT_EQ(target.read(), std::vector<int>{1});
  EXPECT_EQ(seen_before, 2);
  overwritten.wait();
  EXPECT_EQ(source.read(), std::vector<int>{2});
}

TEST_P(GpuConformance, OverwritingTheSourceWaitsForThePeerCopy) {
  const auto a = make(0), b = make(1);
  Block source(*a, 1), target(*b, 1);
  const int one = 1, two = 2;
  std::atomic<bool> open{false};
  a->copy_from_host(source.data, &one, sizeof(int));
  hold_up(*b, open);
  copy_between(*b, target.data, *a, source.data, sizeof(int));
  a->copy_from_host(source.data, &two, sizeof(int));
  const StreamEvent overwritten = a->stream().record();
  std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(overwritten.done());
  open = true;
  EXPECT_EQ(target.read(), std::vector<int>{1});
  EXPECT_EQ(source.read(), std::vector<int>{2});
}

TEST_P(GpuConformance, OppositeCopiesOfTwoThreadsDoNotLock) {
  const auto a = make(0), b = make(1);
  Block a1(*a, 100), a2(*a, 100), b1(*b, 100), b2(*b, 100);
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) copy_between(*a, a1.data, *b, b1.data, a1.bytes);
  });
  for (int i = 0; i < 500; ++i) copy_between(*b, b2.data, *a, a2.data, a2.bytes);
  other.join();
  a->stream().synchronize();
  b->stream().synchronize();
}

TEST_P(GpuConformance, AFailedKernelIsThrownByTheCopyOut) {
  CpuDevice cpu(local_device_name("CPU", 0), 1);
  const auto gpu = make(0);
  Block source(*gpu, 1), target(cpu, 1);
  gpu->stream().enqueue([] { throw InvalidArgumentError("[Op] went wrong"); });
  EXPECT_THROW(copy_between(cpu, target.data, *gpu, source.data, sizeof(int)),
               InvalidArgumentError);
  copy_between(cpu, target.data, *gpu, source.data, sizeof(int));
}

TEST_P(GpuConformance, MemoryIsBounded) {
  const auto gpu = make(0, {.memory_limit = 8 * kMiB});
  EXPECT_EQ(gpu->allocator().stats().bytes_limit, 8 * kMiB);
  EXPECT_EQ(gpu->allocator().stats().bytes_reserved, 0);
  void* some = gpu->allocator().allocate(5 << 20);
  EXPECT_EQ(gpu->allocator().stats().bytes_reserved, 8 * kMiB);  // no growth: all at first use
  EXPECT_EQ(gpu->allocator().allocate(5 << 20), nullptr);        // at once: waiting cannot help
  gpu->allocator().deallocate(some);
}

TEST_P(GpuConformance, MemoryGrowsAndRegionsAreReleasedAfterTheWorkThatUsesThem) {
  const auto gpu = make(0, {.memory_limit = 64 * kMiB, .allow_growth = true});
  const std::vector<int> values = numbers(16'384);
  void* memory = gpu->allocator().allocate(1 << 20);
  EXPECT_EQ(gpu->allocator().stats().bytes_reserved, 2 * kMiB);
  for (int i = 0; i < 16; ++i)
    gpu->copy_from_host(static_cast<std::byte*>(memory) + i * 65536, values.data(), 65536);
  gpu->allocator().deallocate(memory);
  EXPECT_EQ(gpu->allocator().trim(), std::size_t{2} << 20);
  EXPECT_EQ(gpu->allocator().stats().bytes_reserved, 0);
  gpu->stream().synchronize();  // would crash if the region were gone too early
}

}  // namespace
}  // namespace tandem
