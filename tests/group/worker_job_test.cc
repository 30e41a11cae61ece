// Workers, each in its own process, that continue after others have died.
#include "comm/rendezvous/worker_job.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "comm/gloo/gloo_backend.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "group/connect.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/forked_ranks.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/rendezvous.h"

namespace tandem::worker_job_test {
namespace {

using testing::error_of;

std::shared_ptr<Job> join(std::uint16_t port, int rank, int size, Role role = Role::kWorker,
                          const char* more = "") {
  return rendezvous(
      fmt::format("tcp://127.0.0.1:{}?rank={}&world_size={}{}", port, rank, size, more),
      {.role = role, .timeout = testing::kFarAway});
}

std::unique_ptr<Communicator> connect_by(const std::string& backend, Job& job) {
  return connect(job, *DeviceManager::get().devices(DeviceType::kCpu, "test").front(),
                 {.backend = backend, .time_limit = testing::kFarAway});
}

float all_reduce(Communicator& communicator) {
  float value = 1.0f;
  const Buffer buffer = {&value, 1, float32};
  communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
  return value;
}

class WorkerJob : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
  }
};

TEST_P(WorkerJob, WorkersGoOnWithoutOneThatDied) {
  const std::uint16_t port = testing::free_port();
  const ExitCodes codes = run_processes(4, [&](int rank) {
    const ThreadBudget one(1);
    const std::shared_ptr<Job> job = join(port, rank, 4);
    Membership& membership = *job->membership();
    {
      const auto world = connect_by(GetParam(), *job);
      EXPECT_EQ(all_reduce(*world), 4.0f);
      if (rank == 2) kill(getpid(), SIGKILL);
      error_of<Error>([&] { all_reduce(*world); });
    }
    EXPECT_TRUE(testing::eventually([&] { return membership.failed(); }));
    EXPECT_EQ(membership.epoch(), 1);
    const std::unique_ptr<Job> left = worker_job(job);
    EXPECT_FALSE(membership.failed());
    EXPECT_EQ(left->size(), 3);
    EXPECT_EQ(left->names()[2], 3);
    EXPECT_EQ(error_of<FailedPreconditionError>([&] { worker_job(job); }),
              "[membership] no process has failed since epoch 1 began");
    auto workers = connect_by(GetParam(), *left);
    EXPECT_EQ(workers->size(), 3);
    EXPECT_EQ(all_reduce(*workers), 3.0f);
    workers.reset();
    left->shut_down();
  });
  EXPECT_EQ(codes, (ExitCodes{0, 0, 128 + SIGKILL, 0}));
}

// Rank 0 dies; the server outlives it. The evaluator and the parameter server are not affected. The
// workers continue again when rank 1, the first remaining one, dies too.
TEST_P(WorkerJob, WorkersGoOnWithoutRankZeroUnderAnOutsideServer) {
  const std::uint16_t port = testing::free_port();
  constexpr int kWorkers = 4, kEvaluator = 4, kServer = 5, kRanks = 6;
  const auto role_of = [](int rank) {
    return rank == kEvaluator ? Role::kEvaluator : rank == kServer ? Role::kServer : Role::kWorker;
  };
  const auto is_last_error = [](const std::string& error, int rank) {
    return error.starts_with(fmt::format("[membership] rank {} (process ", rank)) &&
           error.ends_with(" is gone: its connection closed without goodbye");
  };
  const ExitCodes codes = run_processes(kRanks + 1, [&](int rank) {
    if (rank == kRanks)
      return comm::RendezvousServer({.port = port, .ranks = kRanks}).wait(testing::kFarAway);
    const ThreadBudget one(1);
    const std::shared_ptr<Job> job = join(port, rank, kRanks, role_of(rank), "&server=outside");
    Membership& membership = *job->membership();
    if (rank >= kWorkers) {
      EXPECT_TRUE(testing::eventually([&] { return membership.epoch() == 2; }));
      EXPECT_FALSE(membership.failed());
      job->store()->set(fmt::format("well {}", rank), "");
      return job->shut_down();
    }
    std::unique_ptr<Job> workers = worker_job(job);
    for (int dies = 0; dies < 2; ++dies) {
      {
        const auto communicator = connect_by(GetParam(), *workers);
        EXPECT_EQ(all_reduce(*communicator), static_cast<float>(kWorkers - dies));
        if (rank == dies) kill(getpid(), SIGKILL);
        error_of<Error>([&] { all_reduce(*communicator); });
      }
      EXPECT_TRUE(testing::eventually([&] { return membership.failed(); }));
      const auto error = error_of<UnavailableError>([&] { membership.throw_failure(); });
      EXPECT_TRUE(is_last_error(error, dies)) << error;
      workers = worker_job(job);
    }
    EXPECT_EQ(workers->size(), 2);
    EXPECT_EQ(workers->names()[0], 2);
    auto communicator = connect_by(GetParam(), *workers);
    EXPECT_EQ(all_reduce(*communicator), 2.0f);
    for (const int other : {kEvaluator, kServer})
      job->store()->get(fmt::format("well {}", other),
                        std::chrono::steady_clock::now() + testing::kFarAway);
    communicator.reset();
    workers->shut_down();
  });
  EXPECT_EQ(codes, (ExitCodes{128 + SIGKILL, 128 + SIGKILL, 0, 0, 0, 0, 0}));
}

// The workers are in a collective: no worker can continue without the server.
TEST_P(WorkerJob, AnOutsideServerThatDiesIsNamed) {
  const std::uint16_t port = testing::free_port();
  const testing::Arrivals reduced;
  constexpr int kRanks = 3;
  const ExitCodes codes = run_processes(kRanks + 1, [&](int rank) {
    if (rank == kRanks) {
      const comm::RendezvousServer server({.port = port, .ranks = kRanks});
      reduced.wait_for(kRanks);
      kill(getpid(), SIGKILL);
    }
    const ThreadBudget one(1);
    const std::shared_ptr<Job> job = join(port, rank, kRanks, Role::kWorker, "&server=outside");
    const auto world = connect_by(GetParam(), *job);
    EXPECT_EQ(all_reduce(*world), 3.0f);
    reduced.arrive();
    const auto names_server = [](const std::string& error) {
      return error.find("the rendezvous server (process ") != std::string::npos;
    };
    // One rank does not call it, so that the others wait.
    const std::string error = rank == 0 ? error_of<UnavailableError>([&] {
      testing::eventually([&] { return job->membership()->failed(); });
      job->membership()->throw_failure();
    })
                                        : testing::any_error_of([&] { all_reduce(*world); });
    EXPECT_TRUE(names_server(error)) << error;
    EXPECT_TRUE(names_server(error_of<UnavailableError>([&] { worker_job(job); })));
  });
  EXPECT_EQ(codes, (ExitCodes{0, 0, 0, 128 + SIGKILL}));
}

TEST_P(WorkerJob, AnEvaluatorThatDiesIsNotMissed) {
  const std::uint16_t port = testing::free_port();
  const ExitCodes codes = run_processes(3, [&](int rank) {
    const ThreadBudget one(1);
    const std::shared_ptr<Job> job =
        join(port, rank, 3, rank == 1 ? Role::kEvaluator : Role::kWorker);
    Membership& membership = *job->membership();
    if (rank == 1) {
      EXPECT_EQ(error_of<FailedPreconditionError>([&] { worker_job(job); }),
                "[worker_job] rank 1 is not a worker");
      // Both workers have reported that they have begun.
      job->store()->get("begun 0", std::chrono::steady_clock::now() + testing::kFarAway);
      job->store()->get("begun 2", std::chrono::steady_clock::now() + testing::kFarAway);
      kill(getpid(), SIGKILL);
    }
    const std::unique_ptr<Job> workers = worker_job(job);
    auto communicator = connect_by(GetParam(), *workers);
    EXPECT_EQ(all_reduce(*communicator), 2.0f);
    job->store()->set(fmt::format("begun {}", rank), "");
    EXPECT_TRUE(testing::eventually([&] { return membership.epoch() == 1; }));
    EXPECT_FALSE(membership.failed());
    EXPECT_EQ(all_reduce(*communicator), 2.0f);
    communicator.reset();
    workers->shut_down();
  });
  EXPECT_EQ(codes, (ExitCodes{0, 128 + SIGKILL, 0}));
}

INSTANTIATE_TEST_SUITE_P(Backends, WorkerJob, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem::worker_job_test
