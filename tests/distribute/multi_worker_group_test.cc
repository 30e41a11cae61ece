// MultiWorkerMirroredStrategy over a process group of the program.
#include "core/parallel.h"
#include "distribute/multi_worker_training.h"
#include "support/errors.h"
#include "support/process_groups.h"

namespace tandem::multi_worker_group_test {
namespace {

using distribute::Communication;
using distribute::MultiWorkerMirroredStrategy;
using testing::Config;
using testing::error_of;
using testing::expect_group;
using testing::expect_near;
using testing::train;
using testing::train_alone;

// The workers are ranks 2 and 0 of three. TF_CONFIG, which describes others, is not read.
TEST(MultiWorkerGroup, FitEqualsOneProcess) {
  const Config config{.run_eagerly = false, .moments = false};
  const std::vector<double> expected = train_alone(config);
  expect_group({.size = 3}, [&](int rank) {
    setenv("TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "ps"}})", 1);
    // A group of some ranks works on one device, and the strategy reduces on the CPU, too.
    const DeviceScope on_cpu("/cpu:0");
    const comm::ProcessGroup group = comm::new_group({2, 0});
    if (rank == 1) {
      EXPECT_NE(error_of<InvalidArgumentError>([&] {
                  MultiWorkerMirroredStrategy strategy({.group = group});
                }).find("this process, global rank 1, is not part of group [2, 0]"),
                std::string::npos);
      return;
    }
    random::set_seed(static_cast<std::uint64_t>(rank) + 7);
    if (rank == 2) random::set_seed(0);  // the chief, with whose weights all start
    const MultiWorkerMirroredStrategy strategy(
        {.timeout = testing::kFarAway, .devices = {"/cpu:0"}, .group = group});
    EXPECT_EQ(strategy.num_workers(), 2);
    EXPECT_EQ(strategy.worker(), rank == 2 ? 0 : 1);
    EXPECT_EQ(strategy.task_type(), "worker");
    expect_near(train(strategy, config), expected, "over a group");
    EXPECT_EQ(comm::all_reduce(constant(1.0), {.group = group}).item(), 2.0);
  });
}

TEST(MultiWorkerGroup, RefusesWhatTheGroupDecides) {
  expect_group({}, [](int) {
    const comm::ProcessGroup group = comm::new_group();
    EXPECT_EQ(error_of<InvalidArgumentError>([&] {
                MultiWorkerMirroredStrategy strategy(
                    {.communication_options = {Communication::kGloo}, .group = group});
              }),
              "[MultiWorkerMirroredStrategy] expected no implementation with a group, which has "
              "'shm'; got 'gloo'");
    EXPECT_EQ(error_of<InvalidArgumentError>([&] {
                MultiWorkerMirroredStrategy strategy(
                    {.silence_limit = std::chrono::seconds(1), .group = group});
              }),
              "[MultiWorkerMirroredStrategy] expected no silence_limit with a group, got 1000 ms");
  });
}

}  // namespace
}  // namespace tandem::multi_worker_group_test
