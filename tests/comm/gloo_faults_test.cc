// What goes wrong between processes that are connected by TCP: ranks that die, are late, part or
// leave. Always a typed error, in bounded time, and the same one on every rank where one can be.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "comm/gloo/gloo_backend.h"
#include "comm/process/process_communicator.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "support/waiting.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::Arrivals;
using testing::error_of;
using testing::expect_parts;

class GlooFaults : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_gloo(), "gloo"); }
};

struct Job {
  std::shared_ptr<Store> store = std::make_shared<ForkedStore>();
  int ranks = 3;
  milliseconds time_limit = testing::kFarAway;
  milliseconds join_limit = testing::kFarAway;
  std::shared_ptr<const Membership> membership;
  std::string address, interface;

  std::unique_ptr<Communicator> join(int rank) const {
    GlooOptions options{.store = store,
                        .name = "test",
                        .rank = rank,
                        .size = ranks,
                        .interface = interface,
                        .address = address,
                        .time_limit = join_limit,
                        .membership = membership};
    Device& on = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
    return make_process_communicator(make_gloo_backend(std::move(options)), on,
                                     {.time_limit = time_limit, .membership = membership});
  }
};

// Runs body as each rank. Ranks in `killed` are expected to end by SIGKILL, the others well.
void run_ranks(const Job& job, const std::vector<int>& killed,
               const std::function<void(Communicator&)>& body) {
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    const ThreadBudget one(1);
    body(*job.join(rank));
  });
  ExitCodes expected(codes.size(), 0);
  for (int rank : killed) expected[static_cast<std::size_t>(rank)] = 128 + SIGKILL;
  EXPECT_EQ(codes, expected);
}

void run_ranks(const Job& job, const std::function<void(Communicator&)>& body) {
  run_ranks(job, {}, body);
}

// Buffers that last as long as a process.
Buffer floats(std::int64_t count, float value = 1.0f) {
  auto* data = new std::vector<float>(static_cast<std::size_t>(count), value);
  return {data->data(), count, float32};
}

void all_reduce(Communicator& communicator, std::int64_t count) {
  const Buffer buffer = floats(count);
  communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
  const auto* data = static_cast<const float*>(buffer.data);
  EXPECT_EQ(
      std::vector<float>(data, data + count),
      std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(communicator.size())));
}

TEST_F(GlooFaults, ARankIsKilledBeforeACollective) {
  run_ranks({}, {1}, [](Communicator& communicator) {
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    for (std::int64_t count : {10, 1'000'000})
      expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, count); }),
                   {"the connection to rank 1 (pid ", ") broke; rank ",
                    " was waiting for it: collective 0 "
                    "(all_reduce (sum) of 10 float32 in 1 part"});
  });
}

// In the midst of a transfer, wherever that is.
TEST_F(GlooFaults, ARankIsKilledInTheMidstOfACollective) {
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
    expect_parts(text, {"the connection to rank 1 (pid ", ") broke", "collective "});
    // The group stays of no use, and says why.
    EXPECT_EQ(error_of<AbortedError>([&] { communicator.barrier(); }), text);
  });
}

TEST_F(GlooFaults, ARankIsKilledAfterACollective) {
  run_ranks({}, {2}, [](Communicator& communicator) {
    all_reduce(communicator, 300'000);
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
    const Buffer buffer = floats(5);
    expect_parts(error_of<AbortedError>([&] {
                   communicator.broadcast({&buffer, 1}, 2)->wait();
                 }),
                 {"the connection to rank 2 (pid ", ") broke",
                  "collective 1 (broadcast of 5 float32 in 1 part from rank 2)"});
  });
}

// Rank 1 is slow, and waits for nobody: rank 0, which waits for rank 1 first, still finds out.
TEST_F(GlooFaults, ADeadRankIsSeenBehindASlowOne) {
  const Arrivals told;
  run_ranks({}, {2}, [&](Communicator& communicator) {
    all_reduce(communicator, 10);
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
    if (communicator.rank() == 1) told.wait_for(1);
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 10); }),
                 {"the connection to rank 2 (pid "});
    told.arrive();
  });
}

TEST_F(GlooFaults, AMessageFromARankThatIsKilled) {
  run_ranks({.ranks = 2}, {0}, [](Communicator& communicator) {
    if (communicator.rank() == 0) kill(getpid(), SIGKILL);
    const Buffer buffer = floats(5);
    expect_parts(error_of<AbortedError>([&] { communicator.recv(buffer, 0)->wait(); }),
                 {"the connection to rank 0 (pid ", "recv of 5 float32 in 1 part from rank 0"});
  });
}

TEST_F(GlooFaults, ARankNeverStarts) {
  const Job job{.ranks = 4, .join_limit = milliseconds(3000)};
  const ExitCodes codes = run_processes(3, [&](int process) {
    const int rank = process == 2 ? 3 : process;
    const std::string text = error_of<DeadlineExceededError>([&] { job.join(rank); });
    // The last to look finds that others have given up.
    expect_parts(text, {"[gloo] rank", " 2", "did not join group 'test' within 3000 ms; "});
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

TEST_F(GlooFaults, ARankThatIsLateIsNamedEverywhere) {
  const Arrivals told;
  run_ranks({.time_limit = milliseconds(3000)}, [&](Communicator& communicator) {
    all_reduce(communicator, 100);
    communicator.label("dense/kernel", 5);
    if (communicator.rank() == 1) told.wait_for(2);
    const std::string text =
        error_of<DeadlineExceededError>([&] { all_reduce(communicator, 300'000); });
    told.arrive();
    EXPECT_EQ(text,
              "[all_reduce] rank 1 did not reach collective 1 (all_reduce (sum) of 300000 float32 "
              "in 1 part, 'dense/kernel', step 5) within 3000 ms; ranks 0 and 2 are waiting");
  });
}

// Whoever waits for a collective behind the one that a rank is missing from names that rank too.
TEST_F(GlooFaults, ARankThatIsLateForAnEarlierCollective) {
  const Arrivals told;
  run_ranks({.time_limit = milliseconds(3000)}, [&](Communicator& communicator) {
    all_reduce(communicator, 100);
    if (communicator.rank() == 1) return told.wait_for(2);
    const Buffer first = floats(10), second = floats(20);
    const auto earlier = communicator.all_reduce({&first, 1}, ReduceOp::kSum);
    const auto later = communicator.broadcast({&second, 1}, 0);
    EXPECT_EQ(error_of<DeadlineExceededError>([&] { later->wait(); }),
              "[broadcast] rank 1 did not reach collective 2 (broadcast of 20 float32 in 1 part "
              "from rank 0) within 3000 ms; ranks 0 and 2 are waiting");
    told.arrive();
  });
}

TEST_F(GlooFaults, AMessageThatNobodySends) {
  const Arrivals told;
  run_ranks({.ranks = 2, .time_limit = milliseconds(300)}, [&](Communicator& communicator) {
    if (communicator.rank() == 1) return told.wait_for(1);
    const Buffer buffer = floats(3);
    EXPECT_EQ(error_of<DeadlineExceededError>([&] { communicator.recv(buffer, 1)->wait(); }),
              "[recv] rank 0 waited 300 ms for rank 1: recv of 3 float32 in 1 part from rank 1");
    told.arrive();
  });
}

// What the ranks call, and what every one of them is told.
void expect_parting(const std::function<std::shared_ptr<Work>(Communicator&)>& call,
                    std::initializer_list<const char*> parts) {
  run_ranks({}, [&](Communicator& communicator) {
    all_reduce(communicator, 10);
    communicator.label("", 7);
    expect_parts(error_of<InvalidArgumentError>([&] { call(communicator)->wait(); }), parts);
  });
}

TEST_F(GlooFaults, RanksThatPartInShape) {
  for (std::int64_t base : {10, 200'000})
    expect_parting(
        [base](Communicator& communicator) {
          const Buffer buffer = floats(communicator.rank() == 1 ? base + 1 : base);
          return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
        },
        {"[all_reduce] ranks parted at collective 1: ", "rank 1 called all_reduce (sum) of ",
         "float32 in 1 part, step 7", "every rank must call the same collectives"});
}

TEST_F(GlooFaults, RanksThatPartInLayout) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer whole = floats(10);
        const std::int64_t cut = communicator.rank() == 2 ? 4 : 5;
        auto* data = static_cast<float*>(whole.data);
        const Buffer parts[] = {{data, cut, float32}, {data + cut, 10 - cut, float32}};
        return communicator.all_reduce(parts, ReduceOp::kSum);
      },
      {"ranks parted at collective 1", "all_reduce (sum) of 10 float32 in 2 parts",
       " with other sizes"});
}

TEST_F(GlooFaults, RanksThatPartInDtype) {
  expect_parting(
      [](Communicator& communicator) {
        Buffer buffer = floats(10);
        if (communicator.rank() == 0) buffer.dtype = int32;
        return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      },
      {"ranks parted at collective 1", "rank 0 called all_reduce (sum) of 10 int32", "10 float32"});
}

TEST_F(GlooFaults, RanksThatPartInOperation) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        return communicator.all_reduce({&buffer, 1},
                                       communicator.rank() == 2 ? ReduceOp::kMax : ReduceOp::kSum);
      },
      {"ranks parted at collective 1", "rank 2 called all_reduce (max)", "all_reduce (sum)"});
}

TEST_F(GlooFaults, RanksThatPartInOrder) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        if (communicator.rank() == 0) return communicator.broadcast({&buffer, 1}, 0);
        return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      },
      {"ranks parted at collective 1",
       "rank 0 called broadcast of 10 float32 in 1 part from rank 0", "called all_reduce (sum)"});
}

TEST_F(GlooFaults, RanksThatPartInRoot) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        return communicator.broadcast({&buffer, 1}, communicator.rank() == 1 ? 1 : 0);
      },
      {"ranks parted at collective 1",
       "rank 1 called broadcast of 10 float32 in 1 part from rank 1", "from rank 0"});
}

TEST_F(GlooFaults, RanksThatPartInWhatTheySendEachOther) {
  expect_parting(
      [](Communicator& communicator) {
        const std::vector<Buffer> sent(3, floats(communicator.rank() == 1 ? 6 : 5));
        const std::vector<Buffer> received = {floats(5), floats(communicator.rank() == 1 ? 6 : 5),
                                              floats(5)};
        return communicator.all_to_all(sent, received);
      },
      {"[all_to_all] ranks parted at collective 1: rank 1 sent 6 float32 to rank ",
       "which expected 5"});
}

TEST_F(GlooFaults, AMessageOfAnotherSize) {
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

TEST_F(GlooFaults, ARankLeavesEarly) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1000);
    if (communicator.rank() == 2) return;
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 300'000); }),
                 {"rank 2 (pid ", ") has left the group", "collective 1 "});
  });
}

TEST_F(GlooFaults, ALeaverThatIsDoneIsNotMissed) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1'000'000);
    const Buffer buffer = floats(900'000, static_cast<float>(communicator.rank()));
    const auto work = communicator.broadcast({&buffer, 1}, 0);
    if (communicator.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    work->wait();
    EXPECT_EQ(static_cast<float*>(buffer.data)[899'999], 0.0f);
  });
}

// A job's membership, as far as this process has been told.
class TestMembership final : public Membership {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool failed() const noexcept override { return failed_->load(std::memory_order_relaxed); }
  void throw_failure() const override { throw UnavailableError("rank 7 on host far went away"); }
  void report(const std::string&) override { failed_->store(true); }

 private:
  std::shared_ptr<std::atomic<bool>> failed_ = testing::shared_with_forks<std::atomic<bool>>();
};

TEST_F(GlooFaults, AFailureThatTheMembershipKnowsEndsAWait) {
  const auto membership = std::make_shared<TestMembership>();
  const Arrivals told;
  run_ranks({.ranks = 2, .membership = membership}, [&](Communicator& communicator) {
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(200));  // in most runs rank 0 is waiting by then
      membership->report("out of memory");
      return told.wait_for(1);
    }
    EXPECT_EQ(error_of<UnavailableError>([&] { all_reduce(communicator, 10); }),
              "rank 7 on host far went away");
    told.arrive();
  });
}

TEST_F(GlooFaults, TwoJobsAtOnce) {
  const Job jobs[2];  // groups of one name, found through stores of their own
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

TEST_F(GlooFaults, AnAddressOrInterfaceThatIsNotHere) {
  expect_parts(
      error_of<InvalidArgumentError>([] { Job{.ranks = 1, .address = "192.0.2.1"}.join(0); }),
      {"[gloo] cannot listen on address '192.0.2.1'"});
  setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
  expect_parts(error_of<InvalidArgumentError>([] { Job{.ranks = 1}.join(0); }),
               {"[gloo] cannot listen on interface 'no-such-interface'"});
}

TEST_F(GlooFaults, TheInterfaceOfTheEnvironmentIsUsed) {
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  run_ranks({}, [](Communicator& communicator) { all_reduce(communicator, 1000); });
}

// What is written to a connection that a peer has closed is an error, not a signal, whatever the
// program does about SIGPIPE.
TEST_F(GlooFaults, SigpipeIsLeftAlone) {
  signal(SIGPIPE, SIG_DFL);
  run_ranks({}, {1}, [](Communicator& communicator) {
    const Buffer buffer = floats(4'000'000);
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    std::this_thread::sleep_for(milliseconds(100));
    error_of<AbortedError>([&] { communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait(); });
    EXPECT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
  });
}

}  // namespace
}  // namespace tandem
