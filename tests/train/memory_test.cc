// How the memory of a training model is accounted by tag.
#include <gtest/gtest.h>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::memory_test {
namespace {

using config::MemoryByTag;
using config::MemoryInfo;
using testing::expect_error;

constexpr std::int64_t kInputs = 128, kHidden = 256, kClasses = 10, kBatch = 64;
constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kParameters = kInputs * kHidden + kHidden + kHidden * kClasses + kClasses;

std::int64_t sum(const MemoryByTag& tags) {
  return tags.weights + tags.activations + tags.gradients + tags.optimizer + tags.workspace +
         tags.other;
}

MemoryInfo info(const char* device) {
  const MemoryInfo memory = config::get_memory_info(device);
  EXPECT_EQ(sum(memory.by_tag), memory.current);
  EXPECT_GE(sum(memory.peak_by_tag), memory.peak);
  return memory;
}

// Blocks have at most twice the requested size, in units of 256 bytes.
void expect_about(std::int64_t bytes, std::int64_t elements, std::int64_t blocks) {
  EXPECT_GE(bytes, elements * kFloat);
  EXPECT_LT(bytes, 2 * (elements * kFloat + blocks * 256));
}

// Trains a model on `device`. `inside`: memory in use while its second layer ran.
struct Trained {
  explicit Trained(const char* device)
      : model({layers::Dense(kHidden, {.activation = "relu", .input_shape = {kInputs}}),
               layers::Lambda([this, device](const Tensor& x) {
                 inside = info(device).by_tag;
                 return x;
               }),
               layers::Dense(kClasses)}) {
    // Traced steps allocate one arena for all temporary tensors, tagged as activations.
    model.compile({.optimizer = "adam",
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"},
                   .run_eagerly = true});
    const Tensor x = random::normal({3 * kBatch, kInputs});
    const Tensor y = zeros({3 * kBatch}, {.dtype = int64});
    history = model.fit(
        data::Dataset::from_tensor_slices({x, y}).shuffle(3 * kBatch).batch(kBatch).prefetch(1),
        {.verbose = 0});
  }

  MemoryByTag inside;
  Sequential model;
  History history;
};

TEST(MemoryTags, ATrainingStepOnTheCpu) {
  testing::use_gpus(0);
  const Trained trained("CPU:0");
  expect_about(trained.inside.weights, kParameters, 4);
  expect_about(trained.inside.optimizer, 2 * kParameters, 9);
  EXPECT_GE(trained.inside.activations, kBatch * kHidden * kFloat);
  EXPECT_EQ(trained.inside.gradients, 0);
  EXPECT_GE(trained.inside.other, kBatch * kInputs * kFloat);  // the batch

  const MemoryInfo after = info("CPU:0");
  EXPECT_EQ(after.by_tag.weights, trained.inside.weights);
  EXPECT_EQ(after.by_tag.optimizer, trained.inside.optimizer);
  EXPECT_EQ(after.by_tag.activations, 0);
  EXPECT_EQ(after.by_tag.gradients, 0);
  EXPECT_EQ(after.by_tag.workspace, 0);
  EXPECT_GE(after.peak_by_tag.gradients, kParameters * kFloat);
  EXPECT_GT(after.peak_by_tag.workspace, 0);
  EXPECT_GT(after.peak_by_tag.activations, trained.inside.activations);

  config::reset_memory_stats("CPU:0");
  const MemoryInfo fresh = info("CPU:0");
  EXPECT_EQ(fresh.peak, fresh.current);
  EXPECT_EQ(fresh.peak_by_tag.gradients, 0);
  EXPECT_EQ(fresh.peak_by_tag.weights, fresh.by_tag.weights);
}

TEST(MemoryTags, ATrainingStepOnAGpu) {
  testing::use_gpus(1);
  const Trained trained("GPU:0");
  expect_about(trained.inside.weights, kParameters, 4);
  expect_about(trained.inside.optimizer, 2 * kParameters, 8);  // the number of steps is on the host
  EXPECT_GE(trained.inside.activations, kBatch * kHidden * kFloat);

  const MemoryInfo gpu = info("GPU:0");
  EXPECT_EQ(gpu.by_tag.activations + gpu.by_tag.gradients + gpu.by_tag.workspace, 0);
  EXPECT_GE(gpu.peak_by_tag.gradients, kParameters * kFloat);
  const MemoryInfo cpu = info("CPU:0");
  if (!testing::has_real_gpus()) {  // emulated GPUs run kernels on the host
    EXPECT_EQ(gpu.peak_by_tag.workspace, 0);
    EXPECT_GT(cpu.peak_by_tag.workspace, 0);
  }
  EXPECT_EQ(cpu.by_tag.workspace, 0);
  EXPECT_EQ(cpu.by_tag.weights, 0);
}

TEST(MemoryTags, GradientsOfATapeAndOfBackward) {
  testing::use_gpus(0);
  const Variable w(ones({1024}));
  {
    GradientTape tape;
    const Tensor loss = reduce_sum(w * w);
    EXPECT_GT(info("CPU:0").by_tag.activations, 0);
    const Tensor gradient = tape.gradient(loss, w);
    EXPECT_GE(info("CPU:0").by_tag.gradients, 1024 * kFloat);
  }
  EXPECT_EQ(info("CPU:0").by_tag.gradients, 0);
  reduce_sum(w * w).backward();
  const MemoryByTag held = info("CPU:0").by_tag;
  EXPECT_EQ(held.gradients, 1024 * kFloat);  // the variable's gradient
  EXPECT_EQ(held.activations, 0);
}

TEST(MemoryTags, DataAndConstantsAreOther) {
  testing::use_gpus(0);
  const Tensor a = constant(std::vector<float>(1024, 1.0f));
  const auto data = data::Dataset::from_tensors({a}).map(
      [](const data::Example& e) { return data::Example{e[0] + 1.0}; });
  data::Iterator batches = data.iterate();
  const auto batch = batches.next();
  const MemoryByTag held = info("CPU:0").by_tag;
  EXPECT_GE(held.other, 2 * 1024 * kFloat);
  EXPECT_EQ(held.activations, 0);
}

TEST(MemoryTags, TheOperationThatRanOutIsNamed) {
  testing::use_gpus(1, 16);
  const Tensor a = ones({1024, 1024});
  const auto too_large = [&] { concat({a, a, a, a}, 0); };
  expect_error<ResourceExhaustedError>(
      too_large,
      "OOM when allocating tensor with shape (4096, 1024) and dtype float32 on "
      "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc for operation Concat");
  expect_error<ResourceExhaustedError>(too_large, "in use 4.0 MiB (activations 4.0 MiB)");
}

}  // namespace
}  // namespace tandem::memory_test
