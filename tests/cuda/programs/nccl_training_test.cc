// Training on the fake GPUs with an NCCL that fails on request.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "support/errors.h"
#include "support/files.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing::error_of;

constexpr std::int64_t kEpochs = 4;

// Returns the weights and slots after fit(). `backup`: the directory to resume from.
std::vector<std::vector<float>> train(const std::filesystem::path& backup) {
  const distribute::MirroredStrategy strategy(
      {.devices = {"/gpu:0", "/gpu:1"}, .cross_device_ops = distribute::NcclAllReduce()});
  random::set_seed(3);
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                        layers::BatchNormalization(), layers::Dense(3)});
    model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 32; ++i) labels.push_back(i % 3);
  const auto data =
      data::Dataset::from_tensor_slices({random::normal({32, 6}), constant(labels)}).batch(8);
  model.fit(data,
            {.epochs = kEpochs,
             .verbose = 0,
             .callbacks = {callbacks::BackupAndRestore(backup, {.delete_checkpoint = false})}});
  std::vector<std::vector<float>> values;
  for (const Variable& variable : model.variables())
    values.push_back(variable.value().to_vector<float>());
  for (const Variable& variable : model.optimizer().variables())
    values.push_back(cast(variable.value(), float32).to_vector<float>());
  return values;
}

// The GPUs continue with wrong numbers until a thread waits for one of them. None of these may
// reach the backup: training that resumes from it must end with the bits of an undisturbed run.
TEST(NcclTraining, GoesOnFromItsBackupAfterACollectiveFailed) {
  const testing::TemporaryDirectory folder;
  setenv("FAKE_NCCL_FAILS_LATER", "7", 1);  // of this process: in the second epoch or later
  const std::string text = error_of<AbortedError>([&] { train(folder.path() / "broken"); });
  EXPECT_NE(text.find("[nccl]"), std::string::npos) << text;
  const auto resumed = train(folder.path() / "broken");
  EXPECT_EQ(resumed, train(folder.path() / "unbroken"));
}

}  // namespace
}  // namespace tandem
