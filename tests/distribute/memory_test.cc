// How the memory of replicas is accounted by tag.
#include <gtest/gtest.h>

#include "comm/bucket.h"
#include "support/gpus.h"
#include "support/nccl.h"
#include "tandem/tandem.h"

namespace tandem::memory_test {
namespace {

constexpr std::int64_t kParameterBytes = (128 * 256 + 256 + 256 + 1) * 4;

// The device memory of a bucket for all gradients, which is allocated in units of 256 bytes.
std::int64_t bucket_bytes() {
  std::size_t bytes = 0;
  for (std::int64_t count : {128 * 256, 256, 256, 1}) bytes += Bucket::array_bytes(count, float32);
  return static_cast<std::int64_t>((bytes + 255) / 256 * 256);
}

// `gradients`: bytes that are kept between steps.
void train(const distribute::MirroredStrategy& strategy, std::int64_t gradients = 0) {
  const auto scope = strategy.scope();
  Sequential model({layers::Dense(256, {.input_shape = {128}}), layers::Dense(1)});
  // Traced steps allocate one arena for all temporary tensors, tagged as activations.
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}),
                 .loss = "mse",
                 .run_eagerly = true});
  model.fit(ones({32, 128}), ones({32, 1}), {.batch_size = 16, .verbose = 0});
  for (const std::string& device : strategy.devices()) {
    const config::MemoryInfo memory = config::get_memory_info(device);
    EXPECT_GE(memory.by_tag.weights, kParameterBytes) << device;
    EXPECT_GE(memory.by_tag.optimizer, kParameterBytes) << device;
    EXPECT_GE(memory.peak_by_tag.gradients, kParameterBytes) << device;
    EXPECT_EQ(memory.by_tag.gradients, gradients) << device;
    EXPECT_EQ(memory.by_tag.workspace, 0) << device;
    EXPECT_GE(memory.peak_by_tag.other, 16 / 2 * 128 * 4) << device;  // its half of a batch
  }
}

TEST(MirroredMemory, MemoryIsAccountedPerReplicaAndTag) {
  testing::use_gpus(2);
  train(distribute::MirroredStrategy(), testing::nccl_joins_gpus() ? bucket_bytes() : 0);
}

TEST(MirroredMemory, SumsOnACpuForUnlikeDevicesAreWorkspace) {
  testing::use_gpus(1);
  train(distribute::MirroredStrategy({.devices = {"GPU:0", "CPU:0"}}));
  EXPECT_GT(config::get_memory_info("GPU:0").peak_by_tag.workspace, 0);
}

}  // namespace
}  // namespace tandem::memory_test
