// Checkpoints of TPUStrategy, and those that it shares with MirroredStrategy.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "distribute/checkpoint_training.h"
#include "support/pjrt.h"

namespace tandem::tpu_checkpoint_test {
namespace {

using distribute::MirroredStrategy;
using distribute::Strategy;
using distribute::TPUStrategy;
using testing::train_and_save;

class TpuCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::set_logical_cpus(4);
    config::load_pjrt_plugin(testing::first_plugin());
  }
  static MirroredStrategy cpus() {
    return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"}});
  }
  // Trains 2 epochs under one strategy and 2 under the other one; with moving averages and
  // optimizer slots.
  std::string train(const Strategy& first, const Strategy& then) const {
    const std::filesystem::path path = directory_ / std::to_string(runs_++);
    train_and_save(first, {.path = path, .epochs = 2, .moments = true});
    return train_and_save(then, {.path = path, .epochs = 4, .resume = true, .moments = true});
  }
  std::string train(const Strategy& strategy) const {
    return train_and_save(strategy, {.path = directory_ / "whole", .epochs = 4, .moments = true});
  }

 private:
  testing::TemporaryDirectory directory_;
  mutable int runs_ = 0;
};

TEST_F(TpuCheckpoints, ResumedTrainingHasTheBitsOfAnUninterruptedRun) {
  const TPUStrategy tpus;
  EXPECT_EQ(train(tpus, tpus), train(tpus));
}

TEST_F(TpuCheckpoints, MoveToAndFromMirrored) {
  const TPUStrategy tpus;
  const std::vector<double> expected = testing::numbers_of(train(cpus()));
  ASSERT_GT(expected.size(), 100u);
  for (const std::string& text : {train(tpus, cpus()), train(cpus(), tpus)}) {
    const std::vector<double> numbers = testing::numbers_of(text);
    ASSERT_EQ(numbers.size(), expected.size());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(numbers[i], expected[i], 1e-5 * std::fmax(1.0, std::abs(expected[i]))) << i;
  }
}

}  // namespace
}  // namespace tandem::tpu_checkpoint_test
