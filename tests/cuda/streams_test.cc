// The streams of a device beside the one that it computes on, over the fake of CUDA.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "cuda/fake_cuda.h"
#include "device/copy_ahead.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/discovery.h"

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
  // From here on the device computes until the test ends.
  void compute() {
    device_->stream().enqueue([ended = open_.get_future().share()] { ended.wait(); });
  }

  static constexpr std::size_t kBytes = 5 << 20;  // more than a piece
  const std::vector<char> values_ = std::vector<char>(kBytes, 7);
  std::unique_ptr<Device> device_;
  void* memory_ = nullptr;
  std::promise<void> open_;
};

TEST_F(Streams, ACopyAheadGoesBesideWhatComesLater) {
  const Event copied = gpu().copy_from_host_ahead(memory_, values_.data(), kBytes);
  compute();
  copied.wait();
}

TEST_F(Streams, ACopyAheadGoesBehindWhatUsesTheMemoryBefore) {
  compute();
  const Event copied = gpu().copy_from_host_ahead(memory_, values_.data(), kBytes);
  EXPECT_FALSE(copied.done());
}

TEST_F(Streams, CommunicationGoesBesideBoth) {
  compute();
  gpu().communication_stream().synchronize();
}

TEST_F(Streams, WhatIsEnqueuedBehindJoinSeesTheCopies) {
  CopiesAhead copies;
  {
    const CopyAheadScope scope(copies);
    host_to_device(*device_, memory_, values_.data(), kBytes);
  }
  copies.join();
  std::vector<char> seen(kBytes);
  device_->copy_to_host(seen.data(), memory_, kBytes);
  device_->stream().synchronize();
  EXPECT_TRUE(seen == values_);
}

}  // namespace
}  // namespace tandem
