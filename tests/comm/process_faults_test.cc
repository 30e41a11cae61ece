// Failures between processes, with any backend: ranks that die, are late, mismatch or leave. Every
// rank gets a typed error in bounded time, the same one on all ranks if possible.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "comm/fault_job.h"
#include "core/status.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/gpus.h"
#include "support/log_file.h"
#include "support/waiting.h"

namespace tandem::process_faults_test {
namespace {

using std::chrono::milliseconds;
using namespace testing;

using Job = testing::FaultJob;

struct BackendFaults {
  const char* backend;
  // The message about a dead rank: what precedes and follows "rank R (pid P)". Empty if the backend
  // does not detect deaths by itself.
  const char* before_rank = "";
  const char* after_rank = "";

  friend void PrintTo(const BackendFaults& faults, std::ostream* out) { *out << faults.backend; }
};

class ProcessFaults : public ::testing::TestWithParam<BackendFaults> {
 protected:
  void SetUp() override {
    if (GetParam().backend == std::string_view("gloo")) TANDEM_REQUIRE(has_gloo(), "gloo");
    if (GetParam().backend == std::string_view("nccl") && testing::nvidia_gpus() < 3)
      GTEST_SKIP() << "NCCL wants a GPU a rank";
  }

  void run_ranks(Job job, const std::vector<int>& killed,
                 const std::function<void(Communicator&)>& body) const {
    job.backend = GetParam().backend;
    testing::run_ranks(job, killed, body);
  }
  void run_ranks(const Job& job, const std::function<void(Communicator&)>& body) const {
    run_ranks(job, {}, body);
  }
  // Runs the ranks' calls, and expects `parts` in every rank's error.
  void expect_mismatch(const std::function<std::shared_ptr<CollectiveWork>(Communicator&)>& call,
                       std::initializer_list<const char*> parts) const {
    run_ranks({}, [&](Communicator& communicator) {
      all_reduce(communicator, 10);
      communicator.label("", 7);
      expect_parts(error_of<InvalidArgumentError>([&] { call(communicator)->wait(); }), parts);
    });
  }
  // Expects `text` to report a rank's death, and to contain every part.
  static void expect_death_of(int rank, const std::string& text,
                              std::initializer_list<const char*> parts) {
    const std::string who = fmt::format("{}rank {} (pid ", GetParam().before_rank, rank);
    expect_parts(text, {who.c_str(), GetParam().after_rank});
    expect_parts(text, parts);
  }
};

// For backends that detect dead ranks.
class ProcessDeaths : public ProcessFaults {};

TEST_P(ProcessDeaths, ARankIsKilledBeforeACollective) {
  run_ranks({}, {1}, [](Communicator& communicator) {
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    for (std::int64_t count : {10, 1'000'000})
      expect_death_of(1, error_of<AbortedError>([&] { all_reduce(communicator, count); }),
                      {"; rank ",
                       " was waiting for it: collective 0 "
                       "(all_reduce (sum) of 10 float32 in 1 part"});
  });
}

// At an arbitrary point of a transfer.
TEST_P(ProcessDeaths, ARankIsKilledInTheMidstOfACollective) {
  run_ranks({}, {1}, [](Communicator& communicator) {
    const Buffer buffer = floats(2'000'000);
    const auto all_reduce_again = [&] {
      communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
    };
    all_reduce_again();
    if (communicator.rank() == 1) testing::die_soon();
    const std::string text = error_of<AbortedError>([&] {
      for (;;) all_reduce_again();
    });
    expect_death_of(1, text, {"collective "});
    // Later calls throw the group's error.
    EXPECT_EQ(error_of<AbortedError>([&] { communicator.barrier(); }), text);
  });
}

TEST_P(ProcessDeaths, ARankIsKilledAfterACollective) {
  run_ranks({}, {2}, [](Communicator& communicator) {
    all_reduce(communicator, 300'000);
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
    const Buffer buffer = floats(5);
    expect_death_of(2, error_of<AbortedError>([&] {
                      communicator.broadcast({&buffer, 1}, 2)->wait();
                    }),
                    {"collective 1 (broadcast of 5 float32 in 1 part from rank 2)"});
  });
}

// Rank 1 is slow and does not wait. Rank 0 waits for rank 1 first, and still detects the death.
TEST_P(ProcessDeaths, ADeadRankIsDetectedDespiteASlowOne) {
  const Arrivals reported;
  run_ranks({}, {2}, [&](Communicator& communicator) {
    all_reduce(communicator, 10);
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
    if (communicator.rank() == 1) reported.wait_for(1);
    expect_death_of(2, error_of<AbortedError>([&] { all_reduce(communicator, 10); }), {});
    reported.arrive();
  });
}

TEST_P(ProcessDeaths, AMessageFromARankThatIsKilled) {
  run_ranks({.ranks = 2}, {0}, [](Communicator& communicator) {
    if (communicator.rank() == 0) kill(getpid(), SIGKILL);
    const Buffer buffer = floats(5);
    expect_death_of(0, error_of<AbortedError>([&] { communicator.recv(buffer, 0)->wait(); }),
                    {"recv of 5 float32 in 1 part from rank 0"});
  });
}

TEST_P(ProcessFaults, ARankThatIsLateIsNamedEverywhere) {
  const Arrivals reported;
  run_ranks({.time_limit = milliseconds(3000)}, [&](Communicator& communicator) {
    all_reduce(communicator, 100);
    communicator.label("dense/kernel", 5);
    if (communicator.rank() == 1) reported.wait_for(2);
    const std::string text =
        error_of<DeadlineExceededError>([&] { all_reduce(communicator, 300'000); });
    reported.arrive();
    EXPECT_EQ(text,
              "[all_reduce] rank 1 did not reach collective 1 (all_reduce (sum) of 300000 float32 "
              "in 1 part, 'dense/kernel', step 5) within 3000 ms; ranks 0 and 2 are waiting");
  });
}

TEST_P(ProcessFaults, ALongWaitIsLogged) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  const testing::LogFile log;
  run_ranks({}, [&](Communicator& communicator) {
    all_reduce(communicator, 100);
    if (communicator.rank() == 0) {
      EXPECT_TRUE(log.wait_for("[all_reduce] rank 0 did not reach collective 1 (all_reduce (sum)"));
      EXPECT_TRUE(log.wait_for(" ms; ranks 1 and 2 are waiting\n"));
    }
    all_reduce(communicator, 300'000);
    const Buffer buffer = floats(10);
    if (communicator.rank() == 2) communicator.recv(buffer, 1)->wait();
    if (communicator.rank() != 1) return;
    EXPECT_TRUE(log.wait_for("[recv] rank 2 waited "));
    communicator.send(buffer, 2)->wait();
  });
}

// A rank that waits for a later collective than the one that a rank is missing from names that
// rank, too.
TEST_P(ProcessFaults, ARankThatIsLateForAnEarlierCollective) {
  const Arrivals reported;
  run_ranks({.time_limit = milliseconds(3000)}, [&](Communicator& communicator) {
    all_reduce(communicator, 100);
    if (communicator.rank() == 1) return reported.wait_for(2);
    const Buffer first = floats(10), second = floats(20);
    const auto earlier = communicator.all_reduce({&first, 1}, ReduceOp::kSum);
    const auto later = communicator.broadcast({&second, 1}, 0);
    EXPECT_EQ(error_of<DeadlineExceededError>([&] { later->wait(); }),
              "[broadcast] rank 1 did not reach collective 2 (broadcast of 20 float32 in 1 part "
              "from rank 0) within 3000 ms; ranks 0 and 2 are waiting");
    reported.arrive();
  });
}

TEST_P(ProcessFaults, AMessageThatIsNeverSent) {
  const Arrivals reported;
  run_ranks({.ranks = 2, .time_limit = milliseconds(300)}, [&](Communicator& communicator) {
    if (communicator.rank() == 1) return reported.wait_for(1);
    const Buffer buffer = floats(3);
    EXPECT_EQ(error_of<DeadlineExceededError>([&] { communicator.recv(buffer, 1)->wait(); }),
              "[recv] rank 0 waited 300 ms for rank 1: recv of 3 float32 in 1 part from rank 1");
    reported.arrive();
  });
}

TEST_P(ProcessFaults, MismatchOfShapes) {
  for (std::int64_t base : {10, 200'000})
    expect_mismatch(
        [base](Communicator& communicator) {
          const Buffer buffer = floats(communicator.rank() == 1 ? base + 1 : base);
          return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
        },
        {"[all_reduce] ranks diverged at collective 1: ", "rank 1 called all_reduce (sum) of ",
         "float32 in 1 part, step 7", "every rank must call the same collectives"});
}

TEST_P(ProcessFaults, MismatchOfLayouts) {
  expect_mismatch(
      [](Communicator& communicator) {
        const Buffer whole = floats(10);
        const std::int64_t cut = communicator.rank() == 2 ? 4 : 5;
        auto* data = static_cast<float*>(whole.data);
        const Buffer parts[] = {{data, cut, float32}, {data + cut, 10 - cut, float32}};
        return communicator.all_reduce(parts, ReduceOp::kSum);
      },
      {"ranks diverged at collective 1", "all_reduce (sum) of 10 float32 in 2 parts",
       " with other sizes"});
}

TEST_P(ProcessFaults, MismatchOfDtypes) {
  expect_mismatch(
      [](Communicator& communicator) {
        Buffer buffer = floats(10);
        if (communicator.rank() == 0) buffer.dtype = int32;
        return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      },
      {"ranks diverged at collective 1", "rank 0 called all_reduce (sum) of 10 int32",
       "10 float32"});
}

TEST_P(ProcessFaults, MismatchOfReduceOps) {
  expect_mismatch(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        return communicator.all_reduce({&buffer, 1},
                                       communicator.rank() == 2 ? ReduceOp::kMax : ReduceOp::kSum);
      },
      {"ranks diverged at collective 1", "rank 2 called all_reduce (max)", "all_reduce (sum)"});
}

TEST_P(ProcessFaults, MismatchOfOrder) {
  expect_mismatch(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        if (communicator.rank() == 0) return communicator.broadcast({&buffer, 1}, 0);
        return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      },
      {"ranks diverged at collective 1",
       "rank 0 called broadcast of 10 float32 in 1 part from rank 0", "called all_reduce (sum)"});
}

TEST_P(ProcessFaults, MismatchOfRoots) {
  expect_mismatch(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        return communicator.broadcast({&buffer, 1}, communicator.rank() == 1 ? 1 : 0);
      },
      {"ranks diverged at collective 1",
       "rank 1 called broadcast of 10 float32 in 1 part from rank 1", "from rank 0"});
}

TEST_P(ProcessFaults, MismatchOfAllToAllCounts) {
  expect_mismatch(
      [](Communicator& communicator) {
        const std::vector<Buffer> sent(3, floats(communicator.rank() == 1 ? 6 : 5));
        const std::vector<Buffer> received = {floats(5), floats(communicator.rank() == 1 ? 6 : 5),
                                              floats(5)};
        return communicator.all_to_all(sent, received);
      },
      {"[all_to_all] ranks diverged at collective 1: rank 1 sent 6 float32 to rank ",
       "which expected 5"});
}

TEST_P(ProcessFaults, AMessageOfAnotherSize) {
  run_ranks({.ranks = 2}, [](Communicator& communicator) {
    const std::string text = error_of<InvalidArgumentError>([&] {
      const Buffer buffer = floats(communicator.rank() == 0 ? 3 : 4);
      if (communicator.rank() == 0)
        communicator.send(buffer, 1)->wait();
      else
        communicator.recv(buffer, 0)->wait();
      communicator.barrier()->wait();
    });
    EXPECT_EQ(text, "[recv] rank 0 sent 3 float32, rank 1 expected 4 float32");
  });
}

// Only the receiver sees the mismatch; it makes no further call until the other has been informed.
TEST_P(ProcessFaults, AnErrorThatIsMetWhileARankComputes) {
  const Arrivals called, reported;
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    const auto expect_error = [](const std::function<void()>& call) {
      EXPECT_EQ(error_of<InvalidArgumentError>(call),
                "[recv] rank 0 sent 3 float32, rank 1 expected 4 float32");
    };
    if (communicator.rank() == 0) {
      called.wait_for(1);
      expect_error([&] {
        communicator.send(floats(3), 1)->wait();
        communicator.barrier()->wait();
      });
      return reported.arrive();
    }
    const auto work = communicator.recv(floats(4), 0);
    called.arrive();
    reported.wait_for(1);
    expect_error([&] { communicator.barrier(); });
    expect_error([&] { work->wait(); });
  });
}

TEST_P(ProcessFaults, ARankLeavesEarly) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1000);
    if (communicator.rank() == 2) return;
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 300'000); }),
                 {*GetParam().after_rank ? "rank 2 (pid " : "rank 2 has", " has left the group",
                  "collective 1 "});
  });
}

TEST_P(ProcessFaults, ARankMayCloseAfterItsLastCollective) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1'000'000);
    const Buffer buffer = floats(900'000, static_cast<float>(communicator.rank()));
    const auto work = communicator.broadcast({&buffer, 1}, 0);
    if (communicator.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    work->wait();
    EXPECT_EQ(static_cast<float*>(buffer.data)[899'999], 0.0f);
  });
}

TEST_P(ProcessFaults, AFailureThatTheMembershipKnowsEndsAWait) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const Arrivals reported;
  run_ranks({.ranks = 2, .membership = membership}, [&](Communicator& communicator) {
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(200));  // in most runs rank 0 is waiting by then
      membership->report("out of memory");
      return reported.wait_for(1);
    }
    EXPECT_EQ(error_of<UnavailableError>([&] { all_reduce(communicator, 10); }),
              "rank 7 on host far went away");
    reported.arrive();
  });
}

// One rank fails, and another one leaves because of that. Waiting ranks must get the first failure.
TEST_P(ProcessFaults, ARankThatLeftBecauseOfAFailureIsNotBlamed) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const Arrivals reported;
  run_ranks({.membership = membership}, [&](Communicator& communicator) {
    all_reduce(communicator, 10);
    if (communicator.rank() == 2) return;
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(300));  // in most runs rank 0 knows that 2 has left
      membership->report("out of memory");
      return reported.wait_for(1);
    }
    EXPECT_EQ(error_of<UnavailableError>([&] { all_reduce(communicator, 10); }),
              "rank 7 on host far went away");
    reported.arrive();
  });
}

// Rank 1 fails because rank 2 has left, says so and ends. Rank 0 learns of its end while it waits
// for the cause.
TEST_P(ProcessFaults, ARankThatFailedBecauseAnotherLeftIsNotBlamed) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const Arrivals reported;
  run_ranks({.membership = membership}, [&](Communicator& communicator) {
    all_reduce(communicator, 10);
    if (communicator.rank() == 2) return;
    if (communicator.rank() == 0) std::this_thread::sleep_for(milliseconds(400));
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 10); }),
                 {"rank 2 ", " has left the group"});
    if (communicator.rank() == 1) {
      membership->report("it ends");
      return reported.wait_for(1);
    }
    reported.arrive();
  });
}

TEST_P(ProcessFaults, TwoJobsAtOnce) {
  // Groups with equal names in separate stores.
  const Job jobs[] = {{.backend = GetParam().backend}, {.backend = GetParam().backend}};
  const ExitCodes codes = run_processes(6, [&](int process) {
    const ThreadBudget one(1);
    const Job& job = jobs[process % 2];
    const auto communicator = job.join(process / 2);
    for (int round = 0; round < 20; ++round) {
      const Buffer buffer = floats(1000, process % 2 == 0 ? 1.0f : 10.0f);
      communicator->all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
      EXPECT_EQ(static_cast<float*>(buffer.data)[round], process % 2 == 0 ? 3.0f : 30.0f);
    }
  });
  EXPECT_EQ(codes, ExitCodes(6, 0));
}

// Whether the ranks succeed or fail.
TEST_P(ProcessFaults, GroupsLeaveNothingInTheStore) {
  const auto store = std::make_shared<ForkedStore>();
  const std::vector<int> all = {0, 1, 2};
  run_ranks({.store = store}, [&](Communicator& communicator) {
    for (int round = 0; round < 5; ++round) {
      const auto group = communicator.split(all);
      all_reduce(*group, 10);
      const Buffer buffer = floats(10);
      const int next = (group->rank() + 1) % 3, previous = (group->rank() + 2) % 3;
      const auto sent = group->send(buffer, next);
      group->recv(floats(10), previous)->wait();
      sent->wait();
    }
    const auto parting = communicator.split(all);
    all_reduce(*parting, 10);  // all have completed it before one fails
    const Buffer buffer = floats(communicator.rank() == 0 ? 3 : 4);
    error_of<InvalidArgumentError>([&] {
      parting->all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
    });
  });
  EXPECT_EQ(store->keys(), std::vector<std::string>());
}

// Rank 0's input is computed on its device, and it calls nothing until rank 1 has the sum.
void check_device_that_computes(const char* backend) {
  config::set_emulated_gpus(1, 64);
  const Arrivals called, through;
  const Job job{.backend = backend, .ranks = 2, .device = DeviceType::kGpu};
  testing::run_ranks(job, {}, [&](Communicator& communicator) {
    DeviceImpl& device = communicator.device();
    std::vector<float> values(1000, 1.0f);
    const auto memory = communicator.allocate(values.size() * sizeof(float));
    const Buffer buffer = {memory.get(), static_cast<std::int64_t>(values.size()), float32};
    device.copy_from_host(memory.get(), values.data(), buffer.bytes());
    if (communicator.rank() == 0) device.stream().enqueue([&] { called.wait_for(2); });
    const auto work = communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
    called.arrive();
    if (communicator.rank() == 0) through.wait_for(1);
    work->wait();
    through.arrive();
    device.copy_to_host(values.data(), memory.get(), buffer.bytes());
    device.stream().synchronize();
    EXPECT_EQ(values, std::vector<float>(1000, 2.0f));
  });
}

TEST(DevicesOfProcesses, AreFollowedOverShmWhileTheRankComputes) {
  check_device_that_computes("shm");
}

TEST(DevicesOfProcesses, AreFollowedOverGlooWhileTheRankComputes) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  check_device_that_computes("gloo");
}

std::string backend_of(const ::testing::TestParamInfo<BackendFaults>& info) {
  return info.param.backend;
}
const auto kOnHosts = ::testing::Values(BackendFaults{"shm", "", ") died"},
                                        BackendFaults{"gloo", "the connection to ", ") broke"});
INSTANTIATE_TEST_SUITE_P(Backends, ProcessDeaths, kOnHosts, backend_of);
INSTANTIATE_TEST_SUITE_P(Backends, ProcessFaults, kOnHosts, backend_of);
INSTANTIATE_TEST_SUITE_P(OnGpuNccl, ProcessFaults, ::testing::Values(BackendFaults{"nccl"}),
                         backend_of);

}  // namespace
}  // namespace tandem::process_faults_test
