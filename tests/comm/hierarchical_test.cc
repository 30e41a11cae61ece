// Failures in a hierarchical communicator: four processes, two on each of two hosts. Every rank
// gets a typed error that names ranks by their numbers in the whole group.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <optional>
#include <thread>

#include "comm/gloo/gloo_backend.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/local/local_group.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "support/log_file.h"
#include "support/waiting.h"
#include "tandem/config.h"

namespace tandem::hierarchical_test {
namespace {

using std::chrono::milliseconds;
using testing::Arrivals;
using testing::error_of;
using testing::expect_parts;

class Hierarchical : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_gloo(), "gloo"); }
};

constexpr int kRanks = 4;

std::unique_ptr<Communicator> join(const std::shared_ptr<Store>& store, int rank,
                                   milliseconds limit, const std::optional<RankNames>& names = {}) {
  const auto named = [&](std::array<int, 2> ranks) {
    return names ? names->of(ranks) : RankNames();
  };
  DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  const auto through = [&](std::unique_ptr<Backend> backend) {
    return make_process_communicator(std::move(backend), device, {.time_limit = limit});
  };
  const int host = rank / 2;
  auto inner = through(make_shm_backend({.store = store,
                                         .name = "host " + std::to_string(host),
                                         .rank = rank % 2,
                                         .size = 2,
                                         .names = named({host * 2, host * 2 + 1}),
                                         .time_limit = testing::kFarAway}));
  std::unique_ptr<Communicator> outer;
  if (rank % 2 == 0)
    outer = through(make_gloo_backend({.store = store,
                                       .name = "hosts",
                                       .rank = host,
                                       .size = 2,
                                       .names = named({0, 2}),
                                       .time_limit = testing::kFarAway}));
  return make_hierarchical_communicator(std::move(inner), std::move(outer),
                                        {.time_limit = limit, .names = names});
}

// Runs body as each rank. Ranks in `killed` are expected to end by SIGKILL, the others to succeed.
void run_ranks(const std::vector<int>& killed, const std::function<void(Communicator&)>& body,
               milliseconds limit = testing::kFarAway) {
  const auto store = std::make_shared<ForkedStore>();
  const ExitCodes codes = run_processes(kRanks, [&](int rank) {
    const ThreadBudget one(1);
    body(*join(store, rank, limit));
  });
  ExitCodes expected(codes.size(), 0);
  for (int rank : killed) expected[static_cast<std::size_t>(rank)] = 128 + SIGKILL;
  EXPECT_EQ(codes, expected);
}

// A buffer that lives as long as the process.
Buffer floats(std::int64_t count, float value = 1.0f) {
  auto* data = new std::vector<float>(static_cast<std::size_t>(count), value);
  return {data->data(), count, float32};
}

std::shared_ptr<CollectiveWork> all_reduce(Communicator& communicator, std::int64_t count,
                                           ReduceOp op = ReduceOp::kSum) {
  const Buffer buffer = floats(count);
  return communicator.all_reduce({&buffer, 1}, op);
}

void expect_parting(const std::function<std::shared_ptr<CollectiveWork>(Communicator&)>& call,
                    const std::string& text) {
  run_ranks({}, [&](Communicator& communicator) {
    all_reduce(communicator, 10)->wait();
    communicator.label("dense/kernel", 7);
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { call(communicator)->wait(); }), text);
    // Later calls throw the group's error.
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { communicator.barrier(); }), text);
  });
}

TEST_F(Hierarchical, MismatchInsideAGroup) {
  expect_parting(
      [](Communicator& communicator) {
        return all_reduce(communicator, communicator.rank() == 3 ? 11 : 10);
      },
      "[hierarchical] [all_reduce] ranks diverged at collective 1: rank 2 called all_reduce (sum) "
      "of "
      "10 float32 in 1 part, 'dense/kernel', step 7, rank 3 called all_reduce (sum) of 11 float32 "
      "in 1 part, 'dense/kernel', step 7; every rank must call the same collectives in the same "
      "order");
}

// Only rank 2 knows of the mismatch in its group; it makes no further call until then.
TEST_F(Hierarchical, AnErrorThatIsMetWhileARankComputes) {
  const Arrivals called, reported;
  run_ranks({}, [&](Communicator& communicator) {
    const auto expect_parting = [](const std::function<void()>& call) {
      expect_parts(error_of<InvalidArgumentError>(call),
                   {"[hierarchical] [all_reduce] ranks diverged at collective 0: rank 2 called "});
    };
    if (communicator.rank() != 2) {
      called.wait_for(1);
      expect_parting([&] { all_reduce(communicator, communicator.rank() == 3 ? 11 : 10)->wait(); });
      return reported.arrive();
    }
    const auto work = all_reduce(communicator, 10);
    called.arrive();
    reported.wait_for(3);
    expect_parting([&] { communicator.barrier(); });
    expect_parting([&] { work->wait(); });
  });
}

TEST_F(Hierarchical, ErrorsNameRanksOfTheJob) {
  const auto store = std::make_shared<ForkedStore>();
  const ExitCodes codes = run_processes(kRanks, [&](int rank) {
    const ThreadBudget one(1);
    const auto whole = join(store, rank, testing::kFarAway, RankNames({4, 5, 6, 7}));
    const auto half = whole->split(std::array{1, 0, 2});
    if (half) {
      // Ranks 5, 4 and 6 of the job; the last one differs.
      EXPECT_EQ(error_of<InvalidArgumentError>(
                    [&] { all_reduce(*half, half->rank() == 2 ? 11 : 10)->wait(); }),
                "[hierarchical] [all_reduce] ranks diverged at collective 0: ranks 4 and 5 called "
                "all_reduce (sum) of 10 float32 in 1 part, rank 6 called all_reduce (sum) of 11 "
                "float32 in 1 part; every rank must call the same collectives in the same order");
    }
    const std::string text = error_of<InvalidArgumentError>(
        [&] { all_reduce(*whole, whole->rank() == 3 ? 11 : 10)->wait(); });
    EXPECT_NE(text.find("rank 6 called all_reduce (sum) of 10"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 7 called all_reduce (sum) of 11"), std::string::npos) << text;
  });
  EXPECT_EQ(codes, ExitCodes(kRanks, 0));
}

TEST_F(Hierarchical, MismatchBetweenGroups) {
  expect_parting(
      [](Communicator& communicator) {
        return all_reduce(communicator, 10,
                          communicator.rank() < 2 ? ReduceOp::kSum : ReduceOp::kMean);
      },
      "[hierarchical] [all_reduce] ranks diverged at collective 1: ranks 0 and 1 called all_reduce "
      "(sum) of 10 float32 in 1 part, 'dense/kernel', step 7, ranks 2 and 3 called all_reduce "
      "(mean) "
      "of 10 float32 in 1 part, 'dense/kernel', step 7; every rank must call the same collectives "
      "in the same order");
}

TEST_F(Hierarchical, ALongWaitIsLogged) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  const testing::LogFile log;
  run_ranks({}, [&](Communicator& communicator) {
    all_reduce(communicator, 100)->wait();
    if (communicator.rank() == 3) {
      EXPECT_TRUE(
          log.wait_for("3 did not reach collective 1 (all_reduce (sum) of 10 float32 in 1 "
                       "part) within "));
    }
    all_reduce(communicator, 10)->wait();
  });
}

TEST_F(Hierarchical, ARankThatIsLateIsNamedEverywhere) {
  for (int late : {0, 3}) {
    const Arrivals reported;
    run_ranks(
        {},
        [&](Communicator& communicator) {
          all_reduce(communicator, 100)->wait();
          if (communicator.rank() == late) return reported.wait_for(kRanks - 1);
          const std::string text =
              error_of<DeadlineExceededError>([&] { all_reduce(communicator, 3'000'000)->wait(); });
          reported.arrive();
          expect_parts(text, {"did not reach collective 1 (all_reduce (sum) of 3000000 float32 in "
                              "1 part) within 5000 ms",
                              late == 3 ? "3 did not" : "0"});
          // Its group's first rank knows that it waits itself, but not whether other groups do.
          if (late == 3 && communicator.rank() == 2) expect_parts(text, {" is waiting"});
        },
        milliseconds(5000));
  }
}

TEST_F(Hierarchical, ARankIsKilled) {
  for (int victim = 0; victim < kRanks; ++victim)
    run_ranks({victim}, [victim](Communicator& communicator) {
      all_reduce(communicator, 100)->wait();
      if (communicator.rank() == victim) kill(getpid(), SIGKILL);
      expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 3'000'000)->wait(); }),
                   {"[hierarchical] among ", ", counted from 0: ", "rank "});
    });
}

TEST_F(Hierarchical, ARankIsKilledInTheMidstOfACollective) {
  run_ranks({2}, [](Communicator& communicator) {
    const Buffer buffer = floats(2'000'000);
    const auto all_reduce_again = [&] {
      communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
    };
    all_reduce_again();
    if (communicator.rank() == 2) testing::die_soon();
    expect_parts(error_of<AbortedError>([&] {
                   for (;;) all_reduce_again();
                 }),
                 {"[hierarchical] among "});
  });
}

TEST_F(Hierarchical, ARankLeavesEarly) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1000)->wait();
    if (communicator.rank() == 3) return;
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 300'000)->wait(); }),
                 {"[hierarchical] among ranks 2 and 3, counted from 0: rank 1 (pid ",
                  ") has left the group"});
  });
}

// The rank that aborts publishes its error.
TEST_F(Hierarchical, AbortReachesEveryRank) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1000)->wait();
    if (communicator.rank() == 1) communicator.abort(GroupFailure::kAborted, "no more tea");
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 1000)->wait(); }),
                 {"no more tea"});
  });
}

TEST_F(Hierarchical, WithoutConnectionsOfAllRanks) {
  run_ranks({}, [](Communicator& communicator) {
    const int rank = communicator.rank(), near = rank ^ 1, far = (rank + 2) % kRanks;
    const Buffer mine = floats(5, static_cast<float>(rank)), other = floats(5);
    expect_parts(error_of<FailedPreconditionError>([&] { communicator.send(mine, far); }),
                 {"[send] this hierarchical communicator has no direct communicator"});
    const auto sent = communicator.send(mine, near);
    communicator.recv(other, near)->wait();
    sent->wait();
    EXPECT_EQ(static_cast<float*>(other.data)[4], static_cast<float>(near));

    const int apart[] = {1, 3}, first[] = {2, 0}, three[] = {3, 2, 0}, all[] = {0, 1, 2, 3};
    if (rank % 2 == 1)
      expect_parts(error_of<FailedPreconditionError>([&] { communicator.split(apart); }),
                   {"[split] this hierarchical communicator has no direct communicator"});
    const auto again = communicator.split(all);
    all_reduce(*again, 1000)->wait();
    if (rank % 2 == 0) {
      const auto pair = communicator.split(first);
      EXPECT_EQ(pair->rank(), rank == 2 ? 0 : 1);
      all_reduce(*pair, 10)->wait();
    }
    if (rank != 1) {
      const auto group = communicator.split(three);
      EXPECT_EQ(group->rank(), rank == 3 ? 0 : rank == 2 ? 1 : 2);
      const Buffer value = floats(3, static_cast<float>(rank));
      group->broadcast({&value, 1}, 0)->wait();
      EXPECT_EQ(static_cast<float*>(value.data)[2], 3.0f);
    }
    communicator.barrier()->wait();
  });
}

// Results must not depend on the sizes of pieces or on which rank is faster.
TEST_F(Hierarchical, ResultsDoNotDependOnTiming) {
  run_ranks({}, [](Communicator& communicator) {
    std::vector<float> first;
    for (int round = 0; round < 4; ++round) {
      const Buffer buffer = floats(2'500'000);
      auto* data = static_cast<float*>(buffer.data);
      for (std::int64_t i = 0; i < buffer.count; ++i)
        data[i] = std::sin(static_cast<float>(i * (communicator.rank() + 1))) * 1e3f;
      if (communicator.rank() == round) std::this_thread::sleep_for(milliseconds(50));
      communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
      if (round == 0) first.assign(data, data + buffer.count);
      EXPECT_EQ(std::memcmp(first.data(), data, buffer.bytes()), 0);
    }
  });
}

TEST(HierarchicalThreads, OnDevicesThatRunLater) {
  config::set_emulated_gpus(4, 64);
  const auto gpus = DeviceManager::get().devices(DeviceType::kGpu, "test");
  const std::vector<DeviceImpl*> devices(gpus.begin(), gpus.end());
  // One group of three and one of one.
  auto big =
      std::make_shared<LocalGroup>(std::vector<DeviceImpl*>{devices.begin(), devices.end() - 1});
  auto small = std::make_shared<LocalGroup>(std::vector<DeviceImpl*>{devices.back()});
  auto outer =
      std::make_shared<LocalGroup>(std::vector<DeviceImpl*>{devices.front(), devices.back()});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      DeviceImpl& device = *devices[static_cast<std::size_t>(rank)];
      const auto whole = make_hierarchical_communicator(
          rank < 3 ? big->communicator(rank) : small->communicator(0),
          rank % 3 == 0 ? outer->communicator(rank / 3) : nullptr, {.piece_bytes = 4096});
      constexpr std::int64_t kCount = 10'000;
      std::vector<float> values(kCount, static_cast<float>(rank + 1));
      const auto memory = whole->allocate(kCount * sizeof(float));
      const Buffer buffer = {memory.get(), kCount, float32};
      const auto read = [&] {
        device.copy_to_host(values.data(), memory.get(), buffer.bytes());
        device.stream().synchronize();
      };
      device.copy_from_host(memory.get(), values.data(), buffer.bytes());
      whole->all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
      read();
      EXPECT_EQ(values, std::vector<float>(kCount, 2.5f));
      whole->reduce({&buffer, 1}, ReduceOp::kSum, 2)->wait();
      read();
      EXPECT_EQ(values, std::vector<float>(kCount, rank == 2 ? 10.0f : 2.5f));
      whole->broadcast({&buffer, 1}, 1)->wait();
      read();
      EXPECT_EQ(values, std::vector<float>(kCount, 2.5f));
      whole->barrier()->wait();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(HierarchicalThreads, RefuseACommunicatorInTheWrongPlace) {
  config::set_logical_cpus(2);
  const auto cpus = DeviceManager::get().devices(DeviceType::kCpu, "test");
  const auto one = [&](std::size_t device) {
    return std::make_shared<LocalGroup>(std::vector<DeviceImpl*>{cpus[device]})->communicator(0);
  };
  EXPECT_EQ(
      error_of<InvalidArgumentError>([&] { make_hierarchical_communicator(one(0), nullptr); }),
      "[hierarchical] expected a communicator between the groups on the first rank of each "
      "group, and on no other");
  expect_parts(
      error_of<InvalidArgumentError>([&] { make_hierarchical_communicator(one(0), one(1)); }),
      {"[hierarchical] expected communicators of one device, got "});
}

}  // namespace
}  // namespace tandem::hierarchical_test
