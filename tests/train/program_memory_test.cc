// The arena that all traced steps of a model share.
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::program_memory_test {
namespace {

using testing::error_of;

std::int64_t activations() { return config::get_memory_info("GPU:0").by_tag.activations; }

data::Dataset images(std::int64_t count) {
  const DeviceScope host("/cpu:0");
  return data::Dataset::from_tensor_slices(
      {ones({count, 28, 28, 1}), zeros({count}, {.dtype = int64})});
}

Model compiled(Sequential model) {
  model.compile({.optimizer = optimizers::SGD(),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}

Model lenet() {
  return compiled(
      {layers::Conv2D(6, 5, {.padding = "same", .activation = "relu", .input_shape = {28, 28, 1}}),
       layers::MaxPooling2D(), layers::Conv2D(16, 5, {.activation = "relu"}),
       layers::MaxPooling2D(), layers::Flatten(), layers::Dense(120, {.activation = "relu"}),
       layers::Dense(84, {.activation = "relu"}), layers::Dense(10)});
}

TEST(ModelMemory, StepsOfAllKindsAndSizesShareOneArena) {
  testing::use_gpus(1, 128);
  const DeviceScope gpu("/gpu:0");
  Model model = lenet();
  model.fit(images(32).batch(32), {.verbose = 0});
  const std::int64_t training = activations();
  EXPECT_GT(training, 0);
  model.fit(images(45).batch(32), {.verbose = 0});
  static_cast<void>(model.evaluate(images(40).batch(16), {.verbose = 0}));
  static_cast<void>(model.predict(images(40).batch(8)));
  EXPECT_LE(activations(), training + training * 15 / 100);
}

// A step takes more than half of the device's memory, so a second arena would not fit.
TEST(ModelMemory, ABatchThatFitsOnceFitsInAllSteps) {
  // Real GPUs also hold workspaces and staging buffers.
  const std::int64_t mib = testing::has_real_gpus() ? 64 : 23;
  testing::use_gpus(1, mib);
  const DeviceScope gpu("/gpu:0");
  Model model = compiled({layers::Conv2D(32, 3, {.activation = "relu", .input_shape = {28, 28, 1}}),
                          layers::Conv2D(8, 3, {.activation = "relu"}), layers::MaxPooling2D(),
                          layers::Flatten(), layers::Dense(10)});
  const Explanation explanation = explain(model, *images(64).batch(64).iterate().next());
  for (const auto& device : explanation.devices) {
    if (device.limit == 23 << 20) {  // two arenas would not fit
      EXPECT_GT(2 * device.total(), device.limit);
    }
  }
  model.fit(images(64).batch(64), {.verbose = 0});
  model.fit(images(101).batch(64), {.verbose = 0});
  EXPECT_EQ(model.predict(images(40).batch(8)).shape(), Shape({40, 10}));
}

TEST(ModelMemory, ABatchThatDoesNotFitThrowsAndASmallerOneFits) {
  testing::use_gpus(1, 16);
  const DeviceScope gpu("/gpu:0");
  Model model = compiled({layers::Conv2D(32, 3, {.activation = "relu", .input_shape = {28, 28, 1}}),
                          layers::Flatten(), layers::Dense(10)});
  const std::string error =
      error_of<ResourceExhaustedError>([&] { model.fit(images(128).batch(128), {.verbose = 0}); });
  EXPECT_NE(
      error.find("the values of a run of 'fit' with inputs of shapes (128, 28, 28, 1), (128,) "
                 "(largest values: "),
      std::string::npos)
      << error;
  model.fit(images(48).batch(16), {.verbose = 0});
}

}  // namespace
}  // namespace tandem::program_memory_test
