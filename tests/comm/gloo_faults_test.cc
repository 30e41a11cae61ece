// Failures that are specific to gloo; process_faults_test.cc has the others.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "comm/fault_job.h"
#include "core/status.h"
#include "support/errors.h"
#include "support/expects.h"

namespace tandem::gloo_faults_test {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using testing::expect_parts;
using testing::floats;
using testing::run_ranks;

using Job = testing::FaultJob;

class GlooFaults : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_gloo(), "gloo"); }
};

TEST_F(GlooFaults, ARankNeverStarts) {
  const Job job{.backend = "gloo", .ranks = 4, .join_limit = milliseconds(3000)};
  const ExitCodes codes = run_processes(3, [&](int process) {
    const int rank = process == 2 ? 3 : process;
    const std::string text = error_of<DeadlineExceededError>([&] { job.join(rank); });
    // The rank that times out last finds that the others have aborted.
    expect_parts(text, {"[gloo] rank", " 2", "did not join group 'test' within 3000 ms; "});
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

// When a peer leaves first, Gloo's thread closes the connection, and may still use it when this
// rank's group is destroyed.
TEST_F(GlooFaults, GroupsAreDestroyedWhilePeersLeave) {
  Job job{.backend = "gloo", .ranks = 8, .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    const ThreadBudget one(1);
    for (int group = 0; group < 100; ++group) {
      job.name = std::to_string(group);
      testing::all_reduce(*job.join(rank), 10);
    }
  });
  EXPECT_EQ(codes, ExitCodes(8, 0));
}

// The membership reports a death later than the connection, but knows which rank failed first.
TEST_F(GlooFaults, TheMembershipDecidesWhoFailedFirst) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const testing::Arrivals reported;
  run_ranks({.backend = "gloo", .membership = membership}, {1}, [&](Communicator& communicator) {
    testing::all_reduce(communicator, 10);
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(200));
      membership->report("the first to die");
      return reported.wait_for(1);
    }
    EXPECT_EQ(error_of<UnavailableError>([&] { testing::all_reduce(communicator, 10); }),
              "rank 7 on host far went away");
    reported.arrive();
  });
}

// Another thread calls missing().
TEST_F(GlooFaults, NamesLateRanksWithoutAnotherThread) {
  const testing::Arrivals reported;
  run_ranks({.backend = "gloo", .ranks = 4, .time_limit = milliseconds(2000)}, {},
            [&](Communicator& communicator) {
              testing::all_reduce(communicator, 10);
              if (communicator.rank() != 0) return reported.wait_for(1);
              const Buffer buffer = floats(10);
              const auto work = communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
              std::size_t pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              const rlim_t limit =
                  pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + (1 << 20);
              const rlimit both = {limit, limit};
              ASSERT_EQ(setrlimit(RLIMIT_AS, &both), 0);
              expect_parts(error_of<DeadlineExceededError>([&] { work->wait(); }),
                           {"[all_reduce] rank", " 1", "did not reach collective 1 "});
              reported.arrive();
            });
}

TEST_F(GlooFaults, AnAddressOrInterfaceThatIsNotHere) {
  expect_parts(error_of<InvalidArgumentError>(
                   [] { Job{.backend = "gloo", .ranks = 1, .address = "192.0.2.1"}.join(0); }),
               {"[gloo] cannot listen on address '192.0.2.1'"});
  setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
  expect_parts(error_of<InvalidArgumentError>([] { Job{.backend = "gloo", .ranks = 1}.join(0); }),
               {"[gloo] cannot listen on interface 'no-such-interface'"});
}

TEST_F(GlooFaults, TheInterfaceOfTheEnvironmentIsUsed) {
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  run_ranks({.backend = "gloo"}, {},
            [](Communicator& communicator) { testing::all_reduce(communicator, 1000); });
}

// A rank may leave after its last collective while another rank still waits for a third one: here
// rank 0's announcement reaches rank 2 only after a long message.
TEST_F(GlooFaults, ARankMayLeaveWhileOthersCompleteItsLastCollective) {
  constexpr std::int64_t kCount = std::int64_t{1} << 27;
  run_ranks({.backend = "gloo"}, {}, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const Buffer message = floats(rank == 1 ? 1 : kCount);
    std::shared_ptr<CollectiveWork> transfer;
    if (rank == 0) transfer = communicator.send(message, 2);
    if (rank == 2) transfer = communicator.recv(message, 0);
    communicator.barrier()->wait();
    if (transfer) transfer->wait();
  });
}

// Writing to a connection that a peer has closed raises an error and not a signal, whatever the
// program's SIGPIPE handler.
TEST_F(GlooFaults, DoesNotChangeTheSigpipeHandler) {
  signal(SIGPIPE, SIG_DFL);
  run_ranks({.backend = "gloo"}, {1}, [](Communicator& communicator) {
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
}  // namespace tandem::gloo_faults_test
