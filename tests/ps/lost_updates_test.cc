// Which acknowledged updates a restarted server has lost.
#include "ps/lost_updates.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>

#include "ps/coordinator.h"
#include "ps/in_process.h"
#include "ps/local_cluster.h"
#include "ps/snapshots.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/waiting.h"

namespace tandem::ps::lost_updates_test {
namespace {

proto::ServerLife life(std::vector<std::uint64_t> restarts, std::uint64_t kept = 0) {
  proto::ServerLife made;
  made.mutable_restarts()->Assign(restarts.begin(), restarts.end());
  made.set_kept(kept);
  return made;
}

class ACount : public ::testing::Test {
 protected:
  void returned(const proto::ServerLife& of, std::vector<std::uint64_t> numbers,
                std::size_t server = 1) {
    updates_.returned({.server = server, .life = of, .numbers = std::move(numbers)});
  }
  std::int64_t lost() const { return updates_.counts()[1]; }

  LostUpdates updates_{{"ps:0", "ps:1"}};
};

TEST_F(ACount, IsOfUpdatesAfterTheSnapshot) {
  returned(life({}), {1, 3, 2});
  returned(life({}), {5, 4});
  returned(life({}), {1, 2, 3}, 0);
  returned(life({}), {1}, 2);  // there is no such server
  updates_.heard_of(1, life({}));
  EXPECT_EQ(lost(), 0);
  updates_.heard_of(1, life({3}));
  EXPECT_EQ(lost(), 2);
  updates_.heard_of(1, life({3}));
  EXPECT_EQ(updates_.counts(), (std::vector<std::int64_t>{0, 2}));
}

TEST_F(ACount, LearnsOfARestartFromALaterCall) {
  returned(life({}), {1, 2, 3});
  returned(life({1}), {2});  // the number is given again
  EXPECT_EQ(lost(), 2);
  updates_.heard_of(1, life({1, 1}));
  EXPECT_EQ(lost(), 3);
}

// The calls return when the chief knows already that the server was restarted, perhaps twice.
TEST_F(ACount, IsOfCallsThatReturnLater) {
  updates_.heard_of(1, life({10}));
  returned(life({}), {9, 10, 11});
  EXPECT_EQ(lost(), 1);
  updates_.heard_of(1, life({10, 14}));
  returned(life({10}), {13, 14, 15});
  EXPECT_EQ(lost(), 2);
  returned(life({}), {12, 0});  // the later snapshots do not have it, whatever their number
  EXPECT_EQ(lost(), 3);
}

TEST_F(ACount, LeavesOutWhatEverySnapshotHas) {
  returned(life({}, 0), {1, 2, 3, 4});
  returned(life({}, 3), {5});
  updates_.heard_of(1, life({3}));
  EXPECT_EQ(lost(), 2);
}

// A server whose snapshots fail keeps nothing.
TEST(UpdateNumbers, TakeTheMemoryOfTheirGapsAlone) {
  UpdateNumbers numbers;
  for (std::uint64_t number = 1; number <= 100'000; ++number)
    numbers.insert(number % 2 == 0 ? number - 1 : number + 1);
  EXPECT_EQ(numbers.num_ranges(), 1u);
  numbers.insert(200'000);
  numbers.insert(200'000);
  EXPECT_EQ(numbers.num_ranges(), 2u);
  EXPECT_EQ(numbers.erase_up_to(40'000), 40'000);
  EXPECT_EQ(numbers.erase_up_to(40'000), 0);
  EXPECT_EQ(numbers.erase_above(90'000), 10'001);
  EXPECT_EQ(numbers.erase_above(40'000), 50'000);
  EXPECT_EQ(numbers.num_ranges(), 0u);
}

// Numbers of calls that do not return are then counted, too.
TEST(UpdateNumbers, AreJoinedWhereTheFewestAreMissing) {
  constexpr std::uint64_t kNumbers = UpdateNumbers::kRanges, kFar = 10 * kNumbers;
  UpdateNumbers numbers;
  for (std::uint64_t i = 0; i <= kNumbers; ++i)
    numbers.insert(i < kNumbers / 2 ? 5 * i : kFar + 2 * i);
  EXPECT_LE(numbers.num_ranges(), kNumbers / 2 + 1);
  EXPECT_EQ(numbers.erase_up_to(kFar - 1), static_cast<std::int64_t>(kNumbers / 2));
  EXPECT_EQ(numbers.erase_above(0), static_cast<std::int64_t>(kNumbers + 1));
}

TEST_F(ACount, DoesNotGrowWithCallsThatNeverReturn) {
  constexpr std::uint64_t kCalls = 4 * UpdateNumbers::kRanges;
  for (std::uint64_t call = 0; call < kCalls; ++call) returned(life({}), {3 * call + 1});
  updates_.heard_of(1, life({0}));
  EXPECT_GE(lost(), static_cast<std::int64_t>(kCalls));
  EXPECT_LE(lost(), static_cast<std::int64_t>(3 * kCalls));
}

// --- real calls ---

// Two servers, whose stores are replaced, while calls are under way, by those that a process would
// have that continues from the snapshots of a killed one.
class TwoServers {
 public:
  TwoServers() {
    for (std::size_t i = 0; i < 2; ++i) continue_from_snapshot(i);
  }

  void restart(std::size_t i) {
    cluster_.stop_server(i);
    snapshots_[i]->end();
    snapshots_[i].reset();
    cluster_.stores[i] = std::make_unique<ParameterStore>();
    continue_from_snapshot(i);
    restarts_[i].push_back(store(i).updates());
    store(i).set_restarts(restarts_[i]);
    cluster_.start_server(i);
  }
  ParameterStore& store(std::size_t i) { return *cluster_.stores[i]; }
  const testing::LocalCluster& cluster() const { return cluster_; }

 private:
  void continue_from_snapshot(std::size_t i) {
    const auto folder = folder_ / std::to_string(i);
    std::filesystem::create_directories(folder);
    snapshots_[i] = std::make_unique<Snapshots>(
        folder, store(i), Snapshots::Options{.interval = std::chrono::milliseconds(20)});
  }

  const tandem::testing::TemporaryDirectory folder_;
  testing::LocalCluster cluster_{2, 2};
  std::array<std::unique_ptr<Snapshots>, 2> snapshots_;
  std::array<std::vector<std::uint64_t>, 2> restarts_;
};

class LostUpdatesOf : public ::testing::TestWithParam<Decisions::Rules> {};

TEST_P(LostUpdatesOf, EachServerHasEachUpdateOnceButForThoseThatAreReported) {
  TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
  const std::int64_t closures = GetParam().max_staleness ? 1000 : 3000;
  const std::int64_t steps = closures / GetParam().calls_per_update;
  TwoServers servers;
  Variable v(zeros({2}), {.name = "0"}), w(zeros({2}), {.name = "1"});
  const auto traced = testing::trace(
      [&](const auto& inputs) {
        v.assign_add(inputs[0]);
        w.assign_add(inputs[0]);
        return std::vector<Tensor>();
      },
      {zeros({2})});
  const auto id_of = [](std::size_t server) {
    return variable_id(static_cast<std::uint32_t>(server), 3);
  };
  const SplitFunction function = split(*traced, [&](const Resource& variable) {
    return one_shard(id_of(std::stoul(variable.name())), variable.spec().shape);
  });
  for (std::size_t i = 0; i < 2; ++i) servers.store(i).create(id_of(i), "v", zeros({2}));
  const auto lost = std::make_shared<LostUpdates>(std::vector<std::string>{"ps:0", "ps:1"});
  Coordinator coordinator(servers.cluster().tasks(), servers.cluster().clients(),
                          {.rules = GetParam(), .lost_updates = lost});
  coordinator.add_function(0, function.message);  // the servers get its updates from the workers
  for (std::int64_t i = 0; i < closures; ++i)
    coordinator.schedule({.function = 0, .arguments = {ones({2})}});
  for (std::size_t restart = 0; restart < 8; ++restart) {
    const auto at = static_cast<std::int64_t>(restart + 1) * closures / 10;
    ASSERT_TRUE(tandem::testing::eventually([&] { return coordinator.counts().finished >= at; }));
    servers.restart(restart % 3 % 2);
  }
  coordinator.join();
  for (std::size_t i = 0; i < 2; ++i) {
    lost->heard_of(i, servers.store(i).life());  // as by a heartbeat
    const ParameterStore::Read read = servers.store(i).read(id_of(i));
    EXPECT_EQ(read.value.to_vector<float>()[1], static_cast<float>(read.version));
    EXPECT_EQ(static_cast<std::int64_t>(read.version) + lost->counts()[i], steps) << i;
    EXPECT_EQ(lost->counts()[i], coordinator.counts().updates_lost[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, LostUpdatesOf,
                         ::testing::Values(Decisions::Rules{}, Decisions::Rules{.max_staleness = 0},
                                           Decisions::Rules{.max_staleness = 0,
                                                            .calls_per_update = 2}));

}  // namespace
}  // namespace tandem::ps::lost_updates_test
