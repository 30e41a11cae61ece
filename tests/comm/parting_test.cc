// Ranks that leave, or die, when they have done their part of a collective that others have not
// completed: here rank 1, which is stopped meanwhile. The last process of each test resumes it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "comm/fault_job.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/waiting.h"

namespace tandem::parting_test {
namespace {

using namespace testing;

class StoppedProcess {
 public:
  void stop_this() const {
    *process_ = getpid();
    raise(SIGSTOP);
  }
  void wait_until_stopped() const {
    eventually([&] { return *process_ != 0 && state() == 'T'; });
  }
  void resume() const { kill(*process_, SIGCONT); }

 private:
  char state() const {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(*process_) + "/stat"), line);
    const std::size_t name_end = line.rfind(')');
    return name_end + 2 < line.size() ? line[name_end + 2] : ' ';
  }
  std::shared_ptr<std::atomic<pid_t>> process_ = shared_with_forks<std::atomic<pid_t>>();
};

class Parting : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string_view("gloo")) TANDEM_REQUIRE(has_gloo(), "gloo");
  }
  // Runs the ranks, and a process without a rank.
  void run(FaultJob job, const std::vector<int>& killed,
           const std::function<void(std::unique_ptr<Communicator>)>& rank,
           const std::function<void()>& other) const {
    job.backend = GetParam();
    const ExitCodes codes = run_processes(job.ranks + 1, [&](int process) {
      const ThreadBudget one(1);
      if (process == job.ranks) return other();
      rank(job.join(process));
    });
    ExitCodes expected(codes.size(), 0);
    for (const int each : killed) expected[static_cast<std::size_t>(each)] = 128 + SIGKILL;
    EXPECT_EQ(codes, expected);
  }

  const StoppedProcess stopped_;
  const Arrivals done_;
};

// The others have the sum when rank 0 dies, and the membership knows of its death first.
TEST_P(Parting, ACollectiveCompletesThatARankHadCompletedBeforeItDied) {
  const auto membership = std::make_shared<TestMembership>();
  const Arrivals completed;
  run(
      {.membership = membership}, {0},
      [&](std::unique_ptr<Communicator> communicator) {
        all_reduce(*communicator, 10);
        const Buffer buffer = floats(10);
        if (communicator->rank() == 0) stopped_.wait_until_stopped();
        const auto work = communicator->all_reduce({&buffer, 1}, ReduceOp::kSum);
        if (communicator->rank() == 1) stopped_.stop_this();
        work->wait();
        EXPECT_EQ(static_cast<float*>(buffer.data)[9], 3.0f);
        completed.arrive();
        if (communicator->rank() == 0) {
          completed.wait_for(2);
          membership->report("");
          done_.arrive();
          kill(getpid(), SIGKILL);
        }
        EXPECT_EQ(error_of<UnavailableError>([&] { all_reduce(*communicator, 10); }),
                  "rank 7 on host far went away");
        if (communicator->rank() == 2) completed.wait_for(3);
      },
      [&] {
        done_.wait_for(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        stopped_.resume();
      });
}

INSTANTIATE_TEST_SUITE_P(Backends, Parting, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem::parting_test
