// What replicas' memory is accounted as.
#include <gtest/gtest.h>

#include "tandem/tandem.h"

namespace tandem {
namespace {

TEST(MirroredMemory, EachReplicaHasItsShareByTag) {
  config::set_emulated_gpus(2);
  const distribute::MirroredStrategy strategy;
  const auto scope = strategy.scope();
  Sequential model({layers::Dense(256, {.input_shape = {128}}), layers::Dense(1)});
  model.compile(
      {.optimizer = optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}), .loss = "mse"});
  model.fit(ones({32, 128}), ones({32, 1}), {.batch_size = 16, .epochs = 1, .verbose = 0});
  constexpr std::int64_t kBytes = (128 * 256 + 256 + 256 + 1) * 4;
  for (const char* device : {"GPU:0", "GPU:1"}) {
    const config::MemoryInfo memory = config::get_memory_info(device);
    EXPECT_GE(memory.by_tag.weights, kBytes) << device;
    EXPECT_GE(memory.by_tag.optimizer, kBytes) << device;
    EXPECT_GE(memory.peak_by_tag.gradients, kBytes) << device;
    EXPECT_EQ(memory.by_tag.gradients, 0) << device;
    EXPECT_GT(memory.peak_by_tag.workspace, 0) << device;  // where the gradients are summed
    EXPECT_EQ(memory.by_tag.workspace, 0) << device;
    EXPECT_GT(memory.peak_by_tag.other, 16 / 2 * 128 * 4 - 1) << device;  // its half of a batch
  }
}

}  // namespace
}  // namespace tandem
