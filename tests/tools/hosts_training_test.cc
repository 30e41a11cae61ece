// Training on several hosts: `tandem run` or mpirun starts the ranks, each of which runs this
// test program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <thread>
#include <tuple>

#include "comm/gloo/gloo_backend.h"
#include "core/parallel.h"
#include "parallel/ddp_models.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/hosts.h"
#include "support/mpirun.h"
#include "support/waiting.h"
#include "tandem/tandem.h"
#include "tools/command.h"

namespace tandem::hosts_training_test {
namespace {

using testing::Hosts;
using testing::TemporaryDirectory;
using namespace std::chrono_literals;

constexpr int kSteps = 50;
constexpr std::int64_t kBatch = 9;  // over all ranks, which it does not divide into evenly
constexpr std::int64_t kExamples = kBatch * 3;

// An API for training on several processes.
struct TrainingApi {
  std::string name;
  // Trains kSteps steps as one rank of a job, calls `step` after each, and returns the weights.
  testing::Weights (*train)(const std::string& backend, const std::function<void(int)>& stepped);
};
std::ostream& operator<<(std::ostream& out, const TrainingApi& api) { return out << api.name; }

optimizers::Optimizer momentum(const Model& model) {
  return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.trainable_variables());
}

// The part of a step's batch for rank `rank`.
testing::Examples part(const testing::Examples& data, int step, int rank, int ranks) {
  const auto split = distribute::BatchSplit::even(kBatch, ranks);
  const auto me = static_cast<std::size_t>(rank);
  const std::int64_t begin = step % 3 * kBatch + split.offsets[me];
  return data.rows(begin, begin + split.counts[me]);
}

Tensor share_of_loss(const Sequential& model, const testing::Examples& mine) {
  return nn::compute_average_loss(nn::sparse_softmax_cross_entropy(mine.y, model(mine.x)),
                                  {.global_batch_size = kBatch});
}

testing::Weights train_by_ddp(const std::string& backend, const std::function<void(int)>& stepped) {
  comm::init_process_group({.backend = backend, .timeout = testing::kFarAway});
  EXPECT_EQ(comm::get_backend(), backend);
  const int rank = comm::get_rank(), ranks = comm::get_world_size();
  const testing::Examples data = testing::examples(kExamples);
  testing::Weights weights;
  {
    const parallel::DistributedDataParallel model(
        testing::perceptron(static_cast<std::uint64_t>(5 + rank)));
    auto optimizer = momentum(model);
    for (int step = 0; step < kSteps; ++step) {
      const testing::Examples mine = part(data, step, rank, ranks);
      const Tensor loss = testing::loss_of(model(mine.x), mine.y);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      stepped(step);
    }
    weights = testing::weights_of(model.module());
  }
  comm::destroy_process_group();
  return weights;
}

testing::Weights train_by_strategy(const std::string& backend,
                                   const std::function<void(int)>& stepped) {
  const distribute::MultiWorkerMirroredStrategy strategy(
      {.communication_options = {.implementation = backend == "mpi"
                                                       ? distribute::Communication::kMpi
                                                       : distribute::Communication::kGloo},
       .timeout = testing::kFarAway,
       .devices = {"/cpu:0"}});
  const testing::Examples data = testing::examples(kExamples);
  Sequential model;
  optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = testing::perceptron(static_cast<std::uint64_t>(5 + strategy.worker()));
    optimizer = momentum(model);
  }
  int step = 0;
  const auto batches = data::Dataset::from_tensor_slices({data.x, data.y}).batch(kBatch).repeat();
  for (const auto& batch : strategy.experimental_distribute_dataset(batches)) {
    strategy.run(
        [&](const data::Example& mine) {
          optimizer.minimize(share_of_loss(model, {mine[0], mine[1]}), model.trainable_variables());
          return 0;
        },
        batch);
    stepped(step);
    if (++step == kSteps) break;
  }
  return testing::weights_of(model);
}

testing::Weights train_by_horovod(const std::string& backend,
                                  const std::function<void(int)>& stepped) {
  hvd::init({.backend = backend, .timeout = testing::kFarAway});
  const testing::Examples data = testing::examples(kExamples);
  const Sequential model = testing::perceptron(static_cast<std::uint64_t>(5 + hvd::rank()));
  auto optimizer = hvd::DistributedOptimizer(momentum(model), {.op = hvd::kSum});
  hvd::broadcast_variables(model.variables());
  for (int step = 0; step < kSteps; ++step) {
    const testing::Examples mine = part(data, step, hvd::rank(), hvd::size());
    optimizer.minimize(share_of_loss(model, mine), model.trainable_variables());
    stepped(step);
  }
  hvd::shutdown();
  return testing::weights_of(model);
}

const TrainingApi kApis[] = {
    {"Ddp", train_by_ddp}, {"MultiWorker", train_by_strategy}, {"Horovod", train_by_horovod}};

testing::Weights train_alone() {
  const testing::Examples data = testing::examples(kExamples);
  const Sequential model = testing::perceptron(5);
  auto optimizer = momentum(model);
  for (int step = 0; step < kSteps; ++step) {
    const testing::Examples batch = part(data, step, 0, 1);
    const Tensor loss = testing::loss_of(model(batch.x), batch.y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return testing::weights_of(model);
}

void be_a_rank(const TrainingApi& api, const std::string& backend) {
  const ThreadBudget one(1);
  testing::expect_near(api.train(backend, [](int) {}), train_alone());
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
std::string this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
}
bool is_a_rank() { return std::getenv("TANDEM_TEST_RANK") != nullptr; }

// `tandem run` over these hosts, one rank per host, running this test.
testing::Process launch(const Hosts& hosts, int count, const TemporaryDirectory& folder) {
  hosts.write_remote_shell(folder / "shell");
  std::string list;
  for (int host = 0; host < count; ++host)
    list += fmt::format("{}{}:1", host ? "," : "", Hosts::address(host));
  return testing::Process(
      {"run", "--hosts", list, "--ssh", (folder / "shell").string(), "--env", "TANDEM_TEST_RANK=1",
       "--env", "TANDEM_SILENCE_LIMIT=5", "--env", "TANDEM_TEST_FOLDER=" + (folder / "").string(),
       "--", this_program(), this_test()},
      {});
}

class HostsTraining : public ::testing::TestWithParam<std::tuple<TrainingApi, int>> {
 protected:
  const TrainingApi& api() const { return std::get<0>(GetParam()); }
  int count() const { return std::get<1>(GetParam()); }
};

TEST_P(HostsTraining, OverGlooEqualsOneProcess) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  if (is_a_rank()) {
    be_a_rank(api(), "gloo");
    return;
  }
  const Hosts hosts(count());
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  const testing::Result result = launch(hosts, count(), folder).wait();
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST_P(HostsTraining, OverMpiEqualsOneProcess) {
  if (started_by_mpirun()) {
    be_a_rank(api(), "mpi");
    return;
  }
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  const Hosts hosts(count());
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  hosts.write_remote_shell(folder / "shell");
  std::string list;
  for (int host = 0; host < count(); ++host)
    list += fmt::format("{}{}:1", host ? "," : "", Hosts::address(host));
  EXPECT_EQ(run_this_test_by_mpirun(
                count(), {"--mca", "plm_rsh_agent", (folder / "shell").string(), "--mca", "btl",
                          "tcp,self", "-H", list, "-x", "MASTER_ADDR=" + Hosts::address(0), "-x",
                          "MASTER_PORT=29500", "-x", "TANDEM_JOB_TOKEN=secret"}),
            0);
}

INSTANTIATE_TEST_SUITE_P(All, HostsTraining,
                         ::testing::Combine(::testing::ValuesIn(kApis), ::testing::Values(2, 4)),
                         [](const auto& info) {
                           return fmt::format("{}On{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

class HostsInTraining : public ::testing::TestWithParam<TrainingApi> {};

// The second host's network is cut during training: every rank must fail with an error that names a
// rank on the other side, or the job's server there.
TEST_P(HostsInTraining, ANetworkFailureIsAnErrorOnEveryRank) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  if (is_a_rank()) {
    const std::string folder = std::getenv("TANDEM_TEST_FOLDER"), rank = std::getenv("RANK");
    const std::string text = testing::any_error_of([&] {
      const ThreadBudget one(1);
      GetParam().train("gloo", [&](int step) {
        if (step == 10) testing::write_file(folder + "busy" + rank, "");
        std::this_thread::sleep_for(step < 10 ? 1ms : 1000ms);
      });
    });
    testing::write_file(folder + "part" + rank, text);
    std::filesystem::rename(folder + "part" + rank, folder + "result" + rank);
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
    const char* other = rank == 0 ? "rank 1" : "the rendezvous server";
    EXPECT_NE(text.find(fmt::format("{} (process ", other)), std::string::npos) << text;
  }
  ASSERT_TRUE(hosts.plug_in(1));  // so that the launcher's agent there exits
  launcher.wait();
}

INSTANTIATE_TEST_SUITE_P(All, HostsInTraining, ::testing::ValuesIn(kApis),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::hosts_training_test
