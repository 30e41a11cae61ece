// A device's streams other than its compute stream, on the fake of CUDA.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

#include "cuda/fake_cuda.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/discovery.h"
#include "device/gpu_policy.h"
#include "device/native_gpu.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

class Streams : public ::testing::Test {
 protected:
  Streams() {
    fake_cuda::set_gpus({{.memory = std::size_t{1} << 30}});
    device_ = cuda::find_gpus()[0]->make_device(
        {.name = local_device_name("GPU", 0), .memory_limit = 64 << 20});
    memory_ = device_->allocator().allocate(kBytes);
  }
  ~Streams() override {
    open_.set_value();
    device_->stream().synchronize();
    device_->allocator().deallocate(memory_);
  }
  NativeGpu& gpu() { return *as_native(*device_); }
  // From now on the device computes until the test ends.
  void compute() {
    device_->stream().enqueue([ended = open_.get_future().share()] { ended.wait(); });
  }

  static constexpr std::size_t kBytes = 5 << 20;  // more than one piece
  const std::vector<char> values_ = std::vector<char>(kBytes, 7);
  std::unique_ptr<DeviceImpl> device_;
  void* memory_ = nullptr;
  std::promise<void> open_, write_;
};

TEST_F(Streams, ReadingDoesNotWaitForWhatComesLater) {
  device_->copy_from_host(memory_, values_.data(), kBytes);
  const StreamEvent written = device_->stream().record();
  compute();
  for (const std::size_t bytes : {std::size_t{1}, kKeptInQueue, kKeptInQueue + 1, kBytes}) {
    std::vector<char> seen(bytes);
    gpu().read(seen.data(), memory_, bytes, written);
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), values_.begin())) << bytes;
  }
}

TEST_F(Streams, ReadingWaitsForWhatWritesTheMemory) {
  device_->stream().enqueue([held = write_.get_future().share()] { held.wait(); });
  device_->copy_from_host(memory_, values_.data(), kKeptInQueue);
  const StreamEvent written = device_->stream().record();
  const int waits = fake_cuda::host_counts().waited;
  std::vector<char> seen(kKeptInQueue);
  const auto read = std::async(std::launch::async,
                               [&] { gpu().read(seen.data(), memory_, seen.size(), written); });
  EXPECT_TRUE(testing::eventually([&] { return fake_cuda::host_counts().waited > waits; }));
  write_.set_value();
  read.wait();
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), values_.begin()));
}

TEST_F(Streams, ReadingThrowsWhatHasFailedBefore) {
  device_->stream().enqueue([] { throw NotFoundError("before"); });
  char seen = 0;
  EXPECT_THROW(gpu().read(&seen, memory_, 1, device_->stream().record()), NotFoundError);
  gpu().read(&seen, memory_, 1, device_->stream().record());  // was reported before
}

TEST_F(Streams, CommunicationGoesBesideBoth) {
  compute();
  gpu().communication_stream().synchronize();
}

}  // namespace
}  // namespace tandem
