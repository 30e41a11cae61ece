// Training on several hosts: the ranks are started by `tandem run`, or by mpirun, and run this test
// again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "comm/gloo/gloo_backend.h"
#include "core/parallel.h"
#include "parallel/ddp_models.h"
#include "support/expects.h"
#include "support/hosts.h"
#include "support/mpirun.h"
#include "support/waiting.h"
#include "tandem/tandem.h"
#include "tools/command.h"

namespace tandem {
namespace {

using testing::Hosts;
using testing::TemporaryDirectory;
using namespace std::chrono_literals;

constexpr int kSteps = 50;
constexpr std::int64_t kBatch = 9;  // over all ranks, which it does not divide into evenly

testing::Weights train(int rank, int ranks, const std::function<void(int step)>& stepped) {
  const testing::Examples data = testing::examples(kBatch * 3);
  const parallel::DistributedDataParallel model(
      testing::perceptron(static_cast<std::uint64_t>(5 + rank)));
  auto optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.parameters());
  const auto split = distribute::BatchSplit::even(kBatch, ranks);
  const auto me = static_cast<std::size_t>(rank);
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t begin = step % 3 * kBatch + split.offsets[me];
    const testing::Examples mine = data.rows(begin, begin + split.counts[me]);
    const Tensor loss = testing::loss_of(model(mine.x), mine.y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    stepped(step);
  }
  return testing::weights_of(model.module());
}

testing::Weights train_alone() {
  const testing::Examples data = testing::examples(kBatch * 3);
  const Sequential model = testing::perceptron(5);
  auto optimizer =
      optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.trainable_variables());
  for (int step = 0; step < kSteps; ++step) {
    const testing::Examples batch = data.rows(step % 3 * kBatch, (step % 3 + 1) * kBatch);
    const Tensor loss = testing::loss_of(model(batch.x), batch.y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return testing::weights_of(model);
}

// What a rank does. Its folder is where it says how far it has come.
void be_a_rank(const std::string& backend) {
  const ThreadBudget one(1);
  comm::init_process_group({.backend = backend, .timeout = testing::kFarAway});
  const int rank = comm::get_rank(), ranks = comm::get_world_size();
  EXPECT_EQ(comm::get_backend(), backend);
  testing::expect_near(train(rank, ranks, [](int) {}), train_alone());
  comm::destroy_process_group();
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
std::string this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
}
bool is_a_rank() { return std::getenv("TANDEM_TEST_RANK") != nullptr; }

// `tandem run` over these hosts, a rank each, of this test.
testing::Process launch(const Hosts& hosts, int count, const TemporaryDirectory& folder) {
  hosts.write_remote_shell(folder / "shell");
  std::string list;
  for (int host = 0; host < count; ++host)
    list += fmt::format("{}{}:1", host ? "," : "", Hosts::address(host));
  return testing::Process(
      {"run", "--hosts", list, "--ssh", (folder / "shell").string(), "--env", "TANDEM_TEST_RANK=1",
       "--env", "TANDEM_TEST_FOLDER=" + (folder / "").string(), "--", this_program(), this_test()},
      {});
}

class HostsTraining : public ::testing::TestWithParam<int> {};

TEST_P(HostsTraining, OverGlooEqualsOneProcess) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  if (is_a_rank()) {
    be_a_rank("gloo");
    return;
  }
  const Hosts hosts(GetParam());
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  const testing::Result result = launch(hosts, GetParam(), folder).wait();
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST_P(HostsTraining, OverMpiEqualsOneProcess) {
  if (started_by_mpirun()) {
    be_a_rank("mpi");
    return;
  }
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  const Hosts hosts(GetParam());
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  hosts.write_remote_shell(folder / "shell");
  std::string list;
  for (int host = 0; host < GetParam(); ++host)
    list += fmt::format("{}{}:1", host ? "," : "", Hosts::address(host));
  EXPECT_EQ(run_this_test_by_mpirun(
                GetParam(), {"--mca", "plm_rsh_agent", (folder / "shell").string(), "--mca", "btl",
                             "tcp,self", "-H", list, "-x", "MASTER_ADDR=" + Hosts::address(0), "-x",
                             "MASTER_PORT=29500", "-x", "TANDEM_JOB_TOKEN=secret"}),
            0);
}

INSTANTIATE_TEST_SUITE_P(All, HostsTraining, ::testing::Values(2, 4),
                         [](const auto& info) { return fmt::format("On{}", info.param); });

// The second host's cable is taken out in mid-training: every rank ends with an error that names
// one on the other side.
TEST(HostsInTraining, ACutCableIsAnErrorOfEveryRank) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  if (is_a_rank()) {
    const std::string folder = std::getenv("TANDEM_TEST_FOLDER");
    std::string text = "nothing";
    int rank = -1;
    try {
      const ThreadBudget one(1);
      comm::init_process_group({.backend = "gloo", .timeout = testing::kFarAway});
      rank = comm::get_rank();
      for (int i = 0; i < 1000; ++i)
        train(rank, 2, [&](int step) {
          if (step == 10) testing::write_file(folder + "busy" + std::to_string(rank), "");
          std::this_thread::sleep_for(1ms);
        });
    } catch (const Error& error) {
      text = fmt::format("{}: {}", error.kind(), error.what());
    }
    testing::write_file(folder + "part" + std::to_string(rank), text);
    std::filesystem::rename(folder + "part" + std::to_string(rank),
                            folder + "result" + std::to_string(rank));
    return;
  }
  const Hosts hosts;
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  testing::Process launcher = launch(hosts, 2, folder);
  const auto wait_for = [&](const std::string& kind) {
    for (const char* rank : {"0", "1"})
      testing::eventually([&] { return std::filesystem::exists(folder / (kind + rank)); });
  };
  wait_for("busy");
  ASSERT_TRUE(hosts.cut(1));
  wait_for("result");
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = testing::read_file(folder / ("result" + std::to_string(rank)));
    EXPECT_TRUE(text.starts_with("UnavailableError") || text.starts_with("AbortedError")) << text;
    EXPECT_NE(text.find(fmt::format("rank {} (process ", 1 - rank)), std::string::npos) << text;
  }
  ASSERT_TRUE(hosts.plug_in(1));  // so that the launcher's helper there ends
  launcher.wait();
}

}  // namespace
}  // namespace tandem
