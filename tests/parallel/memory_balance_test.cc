// The memory of the device that gathers outputs, its balance by DataParallelCriterion, and the
// report.
#include <algorithm>
#include <sstream>

#include "parallel/data_parallel_models.h"

namespace tandem::memory_balance_test {
namespace {

using parallel::DataParallel;
using parallel::DataParallelCriterion;
using parallel::DataParallelModel;
using parallel::DeviceBalance;
using testing::Devices;

constexpr std::int64_t kBatch = 256, kClasses = 2000;

const losses::Loss kLoss = losses::SparseCategoricalCrossentropy({.from_logits = true});

// Its outputs take far more memory than its variables.
Sequential wide() {
  return Sequential(
      {layers::Dense(8, {.activation = "relu", .input_shape = {16}}), layers::Dense(kClasses)});
}

// The peaks of three training steps.
std::vector<DeviceBalance> peaks_of(
    const std::vector<Variable>& parameters,
    const std::function<Tensor(const Tensor&, const Tensor&)>& loss) {
  const Tensor x = random::normal({kBatch, 16});
  const Tensor y = random::uniform_int({kBatch}, 0, kClasses);
  auto optimizer = optimizers::SGD({.learning_rate = 0.1}, parameters);
  for (const DeviceBalance& device : parallel::memory_balance())
    config::reset_memory_stats(device.device);
  for (int step = 0; step < 3; ++step) {
    const Tensor value = loss(x, y);
    optimizer.zero_grad();
    value.backward();
    optimizer.step();
  }
  return parallel::memory_balance();
}

TEST(MemoryBalance, TheOutputDeviceHoldsMoreAndTheCriterionBalances) {
  const Devices devices("gpu", 4);
  TANDEM_EMULATION_ONLY("the workspace of their kernels counts as the devices' memory");
  const DataParallel gathered(wide(), {.output_device = 1});
  const auto uneven = peaks_of(gathered.parameters(), [&](const Tensor& x, const Tensor& y) {
    const Tensor outputs = gathered(x);
    const DeviceScope there(outputs.device());
    return kLoss(y, outputs);
  });
  const DataParallelModel model(wide());
  const DataParallelCriterion criterion(kLoss);
  const auto even = peaks_of(
      model.parameters(), [&](const Tensor& x, const Tensor& y) { return criterion(model(x), y); });
  ASSERT_EQ(uneven.size(), 4U);
  const std::int64_t outputs = kBatch * kClasses * 4;
  for (std::size_t i : {0, 2, 3}) {
    EXPECT_GT(uneven[1].peak_bytes, uneven[i].peak_bytes + outputs);
    EXPECT_LT(uneven[i].share_of_largest, 0.75);
  }
  EXPECT_EQ(uneven[1].share_of_largest, 1.0);
  for (const DeviceBalance& device : even) {
    EXPECT_GT(device.share_of_largest, 0.75) << device.device;
    EXPECT_LT(device.peak_bytes, uneven[1].peak_bytes / 2);
  }
}

TEST(MemoryBalance, ReportsALinePerDeviceAndIdleOnes) {
  const Devices devices("gpu", 3);
  const DataParallelModel model(wide(), {.device_ids = {0, 1}});
  profiler::start({});
  const auto outputs = model(random::normal({kBatch, 16}));
  synchronize();
  const profiler::Summary profile = profiler::stop();
  EXPECT_GT(profile.seconds, 0.0);
  const auto rows = parallel::memory_balance(profile);
  ASSERT_EQ(rows.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const DeviceBalance& row = rows[static_cast<std::size_t>(i)];
    EXPECT_EQ(row.device, devices.name(i));
    ASSERT_TRUE(row.busy_share);
    EXPECT_LE(*row.busy_share, 1.0);
    EXPECT_EQ(row.idle, i == 2);
  }
  EXPECT_EQ(*rows[2].busy_share, 0.0);
  EXPECT_EQ(rows[2].peak_bytes, 0);
  EXPECT_GT(*rows[1].busy_share, 0.0);

  std::ostringstream report;
  parallel::print_memory_balance(report, profile);
  const std::string text = report.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_NE(text.find(devices.name(2) + "  peak 0.0 MiB  0 % of the largest  busy 0 %  idle\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("100 % of the largest"), std::string::npos) << text;
}

TEST(MemoryBalance, EmulatedGpusMeasureTheirTime) {
  const Devices devices("gpu", 2);
  TANDEM_EMULATION_ONLY("the time of other devices is known from a profile");
  const Tensor x = random::normal({64, 64});
  for (int i = 0; i < 20; ++i) matmul(x, x);
  const auto rows = parallel::memory_balance();
  ASSERT_TRUE(rows[0].busy_share && rows[1].busy_share);
  EXPECT_GT(*rows[0].busy_share, 0.0);
  EXPECT_LE(*rows[0].busy_share, 1.0);
  EXPECT_EQ(*rows[1].busy_share, 0.0);
  EXPECT_TRUE(rows[1].idle);
  config::reset_memory_stats("/gpu:0");
  EXPECT_EQ(*parallel::memory_balance()[0].busy_share, 0.0);
}

TEST(MemoryBalance, CpusAreListedWithoutTimes) {
  config::set_visible_devices({}, "GPU");
  config::set_logical_cpus(2);
  const Tensor x = ones({1000});
  std::ostringstream report;
  parallel::print_memory_balance(report);
  EXPECT_NE(report.str().find("device:CPU:0  peak 0.0 MiB  100 % of the largest  busy -\n"),
            std::string::npos)
      << report.str();
  EXPECT_NE(report.str().find("device:CPU:1  peak 0.0 MiB  0 % of the largest  busy -  idle\n"),
            std::string::npos)
      << report.str();
}

TEST(MemoryBalance, UnequalGpusGiveAWarning) {
  const auto warning = [](const std::vector<std::int64_t>& mib) {
    config::set_emulated_gpus(1, 4096);
    std::vector<config::LogicalDeviceConfiguration> parts;
    for (const std::int64_t limit : mib) parts.push_back({.memory_limit = limit});
    config::set_logical_device_configuration(config::list_physical_devices("GPU").front(), parts);
    ::testing::internal::CaptureStderr();
    const DataParallel model(wide());
    return ::testing::internal::GetCapturedStderr();
  };
  TANDEM_EMULATION_ONLY("the parts of a real GPU are small");
  const std::string text = warning({100, 76, 74});
  EXPECT_NE(
      text.find("There is an imbalance between your GPUs. You may want to exclude GPU 2 which "
                "has less than 75% of the memory or cores of GPU 0. You can do so by setting "
                "the device_ids argument to DataParallel, or by setting the "
                "CUDA_VISIBLE_DEVICES environment variable."),
      std::string::npos)
      << text;
}

TEST(MemoryBalance, EqualGpusGiveNoWarning) {
  const Devices devices("gpu", 3);
  ::testing::internal::CaptureStderr();
  const DataParallel model(wide());
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("imbalance"), std::string::npos);
}

}  // namespace
}  // namespace tandem::memory_balance_test
