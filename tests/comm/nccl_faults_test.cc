// Failures that are specific to NCCL; process_faults_test.cc has the others. GPUs that hang in
// launched work are only detected by a time limit or by the job's membership.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/fault_job.h"
#include "support/errors.h"
#include "support/gpus.h"

namespace tandem::nccl_faults_test {
namespace {

using std::chrono::milliseconds;
using namespace testing;

using Job = testing::FaultJob;

class OnGpuNcclFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::nvidia_gpus() < 3) GTEST_SKIP() << "NCCL wants a GPU a rank";
  }
};

// Failures that the fake of NCCL simulates on request.
class OnGpuNcclFakeFaults : public OnGpuNcclFaults {
 protected:
  void SetUp() override {
    if (!testing::cuda_is_fake()) GTEST_SKIP() << "a real NCCL does not fail on request";
  }
  // Sets how this process's n-th group of NCCL calls fails. A collective makes two groups: the
  // announcement, then the data.
  static void fail_in(const char* what, int n) { setenv(what, std::to_string(n).c_str(), 1); }
};

TEST_F(OnGpuNcclFaults, ARankIsKilledAndTheJobTells) {
  const auto membership = std::make_shared<testing::TestMembership>();
  const testing::Arrivals reported;
  run_ranks({.backend = "nccl", .membership = membership}, {1}, [&](Communicator& communicator) {
    all_reduce(communicator, 1000);
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(200));  // in most runs rank 0 waits by then
      membership->report("killed");
      return reported.wait_for(1);
    }
    EXPECT_EQ(error_of<UnavailableError>([&] { all_reduce(communicator, 1000); }),
              "rank 7 on host far went away");
    // Later calls throw the group's error.
    EXPECT_EQ(error_of<UnavailableError>([&] { communicator.barrier(); }),
              "rank 7 on host far went away");
    reported.arrive();
  });
}

// Whether or not NCCL reports it.
TEST_F(OnGpuNcclFaults, ARankIsKilledInTheMidstOfACollective) {
  run_ranks({.backend = "nccl", .time_limit = milliseconds(3000)}, {1},
            [](Communicator& communicator) {
              const Buffer buffer = floats(2'000'000);
              if (communicator.rank() == 1) testing::die_soon();
              const std::string text = any_error_of([&] {
                for (;;) communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
              });
              EXPECT_TRUE(text.starts_with("DeadlineExceededError: [all_reduce] ") ||
                          text.starts_with("AbortedError: "))
                  << text;
            });
}

TEST_F(OnGpuNcclFakeFaults, NcclTellsThatARankWasKilled) {
  setenv("FAKE_NCCL_TELLS_OF_DEATHS", "1", 1);
  const testing::Arrivals done;
  run_ranks({.backend = "nccl"}, {1}, [&](Communicator& communicator) {
    all_reduce(communicator, 1000);
    done.meet(communicator.size());
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 20); }),
                 {"[nccl] remote process exited or there was a network error",
                  "in collective 1 (all_reduce (sum) of 20 float32 in 1 part) on rank ",
                  " of group 'test'; it was stopped"});
  });
}

TEST_F(OnGpuNcclFakeFaults, GpusThatHangAreStopped) {
  fail_in("FAKE_NCCL_HANGS", 4);
  run_ranks({.backend = "nccl", .time_limit = milliseconds(1000)}, {},
            [](Communicator& communicator) {
              all_reduce(communicator, 10);
              EXPECT_EQ(error_of<DeadlineExceededError>([&] { all_reduce(communicator, 20); }),
                        "[all_reduce] collective 1 (all_reduce (sum) of 20 float32 in 1 part) did "
                        "not end within 1000 ms, though every rank has reached it");
            });
}

// Ranks do not reach a collective, possibly because something else hangs.
TEST_F(OnGpuNcclFakeFaults, HungGpusAreStoppedWithoutAWaiter) {
  fail_in("FAKE_NCCL_HANGS", 1);
  run_ranks({.backend = "nccl", .ranks = 2, .join_limit = milliseconds(3000)}, {},
            [](Communicator& communicator) {
              const Buffer buffer = floats(20);
              const auto work = communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
              const std::string text = error_of<DeadlineExceededError>([&] {
                do std::this_thread::sleep_for(milliseconds(4000));
                while (!work->test());
              });
              expect_parts(text, {"[nccl] collective 0 (all_reduce (sum) of 20 float32 in 1 part) "
                                  "did not end within 3000 ms on rank ",
                                  " of group 'test'; it was stopped"});
            });
}

// Messages have their own connections.
TEST_F(OnGpuNcclFakeFaults, AMessageThatHangsIsStopped) {
  fail_in("FAKE_NCCL_HANGS", 2);
  run_ranks({.backend = "nccl", .ranks = 2, .time_limit = milliseconds(1000)}, {},
            [](Communicator& communicator) {
              const Buffer buffer = floats(20);
              const std::string text = error_of<DeadlineExceededError>([&] {
                if (communicator.rank() == 0)
                  communicator.send(buffer, 1)->wait();
                else
                  communicator.recv(buffer, 0)->wait();
              });
              expect_parts(text, {" waited 1000 ms for rank ", " of 20 float32 in 1 part "});
            });
}

}  // namespace
}  // namespace tandem::nccl_faults_test
