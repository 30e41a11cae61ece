// spawn(): ranks that a program starts itself, and how they fail.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <numeric>
#include <thread>

#include "core/parallel.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/comm.h"
#include "tandem/creation.h"
#include "tandem/errors.h"
#include "tandem/math.h"
#include "tandem/parallel.h"

namespace tandem::spawn_test {
namespace {

using namespace std::chrono_literals;
using parallel::ProcessExitedError;
using parallel::ProcessRaisedError;
using parallel::spawn;
using namespace testing;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// A host may ignore its children, or reap them itself: then waitpid() knows nothing of a rank.
TEST(Spawn, KnowsHowRanksOfAHostThatIgnoresItsChildrenEnd) {
  signal(SIGCHLD, SIG_IGN);
  spawn([](int, int) {}, {.nprocs = 2});
  EXPECT_EQ(error_of<ProcessRaisedError>([] {
              spawn(
                  [](int rank, int) {
                    if (rank == 1) throw NotFoundError("no data");
                  },
                  {.nprocs = 2});
            }),
            "[spawn] -- Process 1 terminated with the following error: NotFoundError: no data");
  spawn([](int) {}, 2);
  EXPECT_EQ(
      error_of<ProcessExitedError>([] { spawn([](int, int) { raise(SIGKILL); }, {.nprocs = 1}); }),
      "[spawn] process 0 terminated with exit code 1");
}

TEST(Spawn, RanksFindEachOther) {
  for (const int size : {1, 2, 3, 4}) {
    const TemporaryDirectory folder;
    spawn(
        [&](int rank, int world_size) {
          comm::init_process_group({.timeout = testing::kFarAway});
          const Tensor sum = comm::all_reduce(constant(rank + 1));
          write_file(folder / std::to_string(rank), std::to_string(world_size) + " " +
                                                        std::to_string(sum.item<std::int32_t>()) +
                                                        " " + comm::get_backend());
          comm::destroy_process_group();
        },
        {.nprocs = size});
    for (int rank = 0; rank < size; ++rank)
      EXPECT_EQ(read_file(folder / std::to_string(rank)),
                std::to_string(size) + " " + std::to_string(size * (size + 1) / 2) + " shm");
  }
}

TEST(Spawn, SetsTheEnvironmentOfTorchrun) {
  setenv("RANK", "7", 1);                         // of a job that this process is a rank of
  setenv("TANDEM_RENDEZVOUS", "192.0.2.1:9", 1);  // likewise
  unsetenv("OMP_NUM_THREADS");
  const TemporaryDirectory folder;
  spawn(
      [&](int rank, int) {
        std::string text;
        for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR", "TANDEM_RENDEZVOUS"})
          text += variable(name) + " ";
        write_file(folder / std::to_string(rank), text);
        write_file(folder / ("job" + std::to_string(rank)),
                   variable("MASTER_PORT") + variable("TANDEM_JOB_TOKEN"));
        write_file(folder / ("cores" + std::to_string(rank)), std::to_string(available_cores()));
      },
      {.nprocs = 2});
  EXPECT_EQ(read_file(folder / "0"), "0 0 2 2 127.0.0.1  ");
  EXPECT_EQ(read_file(folder / "1"), "1 1 2 2 127.0.0.1  ");
  EXPECT_EQ(read_file(folder / "job0"), read_file(folder / "job1"));
  EXPECT_GT(read_file(folder / "job0").size(), 34u);
  const int all = available_cores();
  EXPECT_EQ(read_file(folder / "cores0"), std::to_string(std::max(1, all / 2)));
  EXPECT_EQ(read_file(folder / "cores1"), std::to_string(std::max(1, all - all / 2)));
  EXPECT_EQ(variable("RANK"), "7");
}

TEST(Spawn, ARankThatThrowsTerminatesTheOthers) {
  int rank = -1;
  const std::string text = error_of<ProcessRaisedError>([&] {
    try {
      spawn(
          [](int own, int) {
            comm::init_process_group({.timeout = testing::kFarAway});
            comm::barrier();
            if (own == 1) matmul(zeros({2, 3}), zeros({4, 5}));
            for (int i = 0; i < 1000; ++i) comm::all_reduce(zeros({100'000}));
          },
          {.nprocs = 3});
    } catch (const ProcessRaisedError& error) {
      rank = error.rank();
      throw;
    }
  });
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(text.find("[spawn] -- Process 1 terminated with the following error: "
                      "ShapeError: [MatMul] expected equal inner sizes"),
            0u)
      << text;
}

TEST(Spawn, ReportsTheCauseAndNotItsConsequences) {
  const Arrivals failed;
  const auto failing = [&](int rank, int) {
    if (rank == 0) {
      failed.arrive();
      throw AbortedError("rank 1 failed");
    }
    failed.wait_for(1);
    std::this_thread::sleep_for(100ms);  // a tenth of the time that spawn() waits for the cause
    throw std::runtime_error("the cause");
  };
  EXPECT_EQ(error_of<ProcessRaisedError>([&] { spawn(failing, {.nprocs = 2}); }),
            "[spawn] -- Process 1 terminated with the following error: the cause");
  // Without another failure, this error is reported after the delay.
  const auto alone = [](int rank, int) {
    if (rank == 0) throw AbortedError("something");
    std::this_thread::sleep_for(1h);
  };
  EXPECT_EQ(error_of<ProcessRaisedError>([&] { spawn(alone, {.nprocs = 2}); }),
            "[spawn] -- Process 0 terminated with the following error: AbortedError: something");
}

TEST(Spawn, ARankIsKilledOrExits) {
  const auto training = [](int rank, int failing, const std::function<void()>& end) {
    comm::init_process_group({.timeout = testing::kFarAway});
    for (int i = 0; i < 1000; ++i) {
      if (rank == failing && i == 3) end();
      comm::all_reduce(zeros({1000}));
      std::this_thread::sleep_for(1ms);
    }
  };
  int code = 0;
  const auto run = [&](int failing, const std::function<void()>& end) {
    return error_of<ProcessExitedError>([&] {
      try {
        spawn([&](int rank, int) { training(rank, failing, end); }, {.nprocs = 3});
      } catch (const ProcessExitedError& error) {
        EXPECT_EQ(error.rank(), failing);
        code = error.exit_code();
        throw;
      }
    });
  };
  EXPECT_EQ(run(2, [] { raise(SIGKILL); }), "[spawn] process 2 terminated with signal SIGKILL");
  EXPECT_EQ(code, 128 + SIGKILL);
  EXPECT_EQ(run(0, [] { _exit(3); }), "[spawn] process 0 terminated with exit code 3");
  EXPECT_EQ(code, 3);
}

TEST(Spawn, ARankThatIgnoresSigtermIsKilled) {
  const auto begin = std::chrono::steady_clock::now();
  const Arrivals deaf;
  EXPECT_EQ(error_of<ProcessExitedError>([&] {
              spawn(
                  [&](int rank, int) {
                    signal(SIGTERM, SIG_IGN);
                    if (rank == 0) deaf.arrive();
                    deaf.wait_for(1);
                    if (rank == 1) _exit(2);
                    std::this_thread::sleep_for(1h);
                  },
                  {.nprocs = 2, .grace = 300ms});
            }),
            "[spawn] process 1 terminated with exit code 2");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
}

bool lives(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(") ");
  return end != std::string::npos && text[end + 2] != 'Z' && text[end + 2] != 'X';
}

TEST(Spawn, RanksDieWithTheirParent) {
  const TemporaryDirectory folder;
  ChildProcess parent([&] {
    spawn(
        [&](int rank, int) {
          write_file(folder / "new", std::to_string(getpid()));
          std::filesystem::rename(folder / "new", folder / std::to_string(rank));
          std::this_thread::sleep_for(1h);
        },
        {.nprocs = 1});
    return "";
  });
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "0"); }));
  const pid_t rank = std::stoi(read_file(folder / "0"));
  EXPECT_TRUE(lives(rank));
  parent.kill(SIGKILL);
  EXPECT_EQ(parent.result(), "");
  EXPECT_TRUE(eventually([&] { return !lives(rank); }));
}

TEST(Spawn, RefusesInvalidArguments) {
  EXPECT_EQ(error_of<InvalidArgumentError>([] { spawn([](int, int) {}, {.nprocs = 0}); }),
            "[spawn] expected nprocs of at least 1, got 0");
  EXPECT_EQ(error_of<InvalidArgumentError>([] { spawn(nullptr); }),
            "[spawn] expected a function, got an empty one");
}

TEST(Spawn, RefusesAProcessWithThreads) {
  spawn([](int, int) {});
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) std::this_thread::sleep_for(1ms);
  });
  EXPECT_EQ(error_of<FailedPreconditionError>([] {
              spawn([](int, int) {});
            }).find("[spawn] expected a process with a single thread, got 2 threads"),
            0u);
  done = true;
  other.join();
}

TEST(Spawn, PassesArgs) {
  const auto expect = [](bool right) {
    if (!right) throw InternalError("other arguments");
  };
  spawn([&](int rank, int n) { expect(n == 7 && rank < 2); }, {.args = {7}, .nprocs = 2});
  spawn([&](int rank, int n) { expect(n == 2 && rank < 2); }, {.nprocs = 2, .join = true});
  spawn([&](int rank) { expect(rank == 0); }, {.nprocs = 1});
  spawn([&](int, int a, int b) { expect(a == 3 && b == 4); }, {.args = {3, 4}, .nprocs = 1});
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              spawn([](int, int) {}, {.args = {1, 2}, .nprocs = 1});
            }),
            "[spawn] the function takes 1 numbers after the rank, got 2 args");
  EXPECT_EQ(error_of<UnimplementedError>([] { spawn([](int, int) {}, {.join = false}); }),
            "[spawn] expected join = true: spawn() waits for the processes");
}

}  // namespace
}  // namespace tandem::spawn_test
