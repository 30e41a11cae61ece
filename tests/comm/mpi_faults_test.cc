// Failures between processes of mpirun.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/process/group_name.h"
#include "comm/process/process_communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/log_file.h"
#include "support/mpirun.h"
#include "support/waiting.h"

namespace tandem::mpi_faults_test {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using testing::expect_parts;

class MpiFaults : public ::testing::Test {
 protected:
  static constexpr const char* kFolder = "TANDEM_TEST_FOLDER";

  void SetUp() override { TANDEM_REQUIRE(can_use_mpirun(), "mpi"); }

  // A meeting point of the ranks that does not use MPI.
  static void arrive(int rank) {
    testing::write_file(std::filesystem::path(std::getenv(kFolder)) / std::to_string(rank), "");
  }
  static void wait_for(std::initializer_list<int> ranks) {
    const std::filesystem::path folder = std::getenv(kFolder);
    for (const int rank : ranks)
      testing::eventually([&] { return std::filesystem::exists(folder / std::to_string(rank)); });
  }

  // Runs body as each of three ranks; expects mpirun's exit code `code`.
  static void run(const std::function<void(Communicator&)>& body,
                  milliseconds time_limit = testing::kFarAway, int code = 0) {
    if (!started_by_mpirun()) return expect_mpirun(code);
    const ThreadBudget one(1);
    DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
    body(*make_process_communicator(make_mpi_backend({.time_limit = time_limit}), device,
                                    {.time_limit = time_limit}));
  }

  static void expect_mpirun(int code) {
    const testing::TemporaryDirectory folder;
    setenv(kFolder, folder.path().c_str(), 1);
    EXPECT_EQ(run_this_test_by_mpirun(3), code);
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
      std::ifstream mapped(file.path());
      for (std::string path; std::getline(mapped, path);)
        EXPECT_FALSE(std::filesystem::exists(path)) << path << " has stayed";
    }
  }
};

// A buffer that lives as long as the process.
Buffer floats(std::int64_t count) {
  auto* data = new std::vector<float>(static_cast<std::size_t>(count), 1.0f);
  return {data->data(), count, float32};
}

void all_reduce(Communicator& communicator, std::int64_t count, ReduceOp op = ReduceOp::kSum) {
  const Buffer buffer = floats(count);
  communicator.all_reduce({&buffer, 1}, op)->wait();
}

// A rank ends or hangs before a collective that the others wait for. mpirun must end by itself.
class MpiExits : public MpiFaults {
 protected:
  // Runs `break_off` as each of three ranks, with the known exit code of mpirun.
  static void expect_exit(int code, const std::function<void(Communicator&)>& break_off) {
    run(
        [&](Communicator& communicator) {
          all_reduce(communicator, 10);
          note_shared_memory(communicator.rank());
          communicator.barrier()->wait();
          break_off(communicator);
        },
        testing::kFarAway, code);
  }

 private:
  // Records the files of /dev/shm that this process has mapped, which expect_mpirun() checks.
  static void note_shared_memory(int rank) {
    std::string paths;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (const auto at = line.find("/dev/shm/"); at != std::string::npos)
        paths += line.substr(at) + "\n";
    testing::write_file(
        std::filesystem::path(std::getenv(kFolder)) / ("mapped" + std::to_string(rank)), paths);
  }
};

TEST_F(MpiExits, WithAnErrorInTheMiddleEndTheJobWithItsCode) {
  expect_exit(3, [](Communicator& communicator) {
    if (communicator.rank() == 1) std::exit(3);
    all_reduce(communicator, 300'000);
  });
}

TEST_F(MpiExits, OfAllWithAnErrorEndTheJob) {
  expect_exit(3, [](Communicator& communicator) {
    error_of<InvalidArgumentError>(
        [&] { all_reduce(communicator, communicator.rank() == 1 ? 11 : 10); });
    std::exit(3);
  });
}

TEST_F(MpiExits, WithZeroInTheMiddleAreReportedToTheOthers) {
  expect_exit(4, [](Communicator& communicator) {
    if (communicator.rank() == 1) std::exit(0);
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 300'000); }),
                 {"rank 1 has left the group; rank ", "collective 2 "});
    std::exit(::testing::Test::HasFailure() ? 5 : 4);
  });
}

// The membership detects it.
TEST_F(MpiExits, OfTheOthersEndTheJobOfARankThatIsStopped) {
  if (!started_by_mpirun()) return expect_mpirun(4);
  const ThreadBudget one(1);
  const auto job =
      rendezvous("env://", {.heartbeat = milliseconds(100), .silence = milliseconds(3000)});
  DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  const auto communicator =
      make_process_communicator(make_mpi_backend({.membership = job->membership()}), device,
                                {.time_limit = testing::kFarAway, .membership = job->membership()});
  all_reduce(*communicator, 10);
  if (job->rank() == 1) raise(SIGSTOP);
  expect_parts(error_of<UnavailableError>([&] { all_reduce(*communicator, 300'000); }),
               {"rank 1 (process ", "no message was received for 3000 ms"});
  std::exit(::testing::Test::HasFailure() ? 5 : 4);
}

// The others are in MPI_Init_thread, from which mpirun would not save them.
TEST_F(MpiExits, OfTheOthersEndTheJobOfARankThatIsStoppedBeforeItStartsMpi) {
  if (!started_by_mpirun()) return expect_mpirun(1);
  const auto job =
      rendezvous("env://", {.heartbeat = milliseconds(100), .silence = milliseconds(3000)});
  if (job->rank() == 1) raise(SIGSTOP);
  make_mpi_backend({.membership = job->membership()});
  std::exit(6);
}

TEST_F(MpiExits, OfTheOthersEndTheJobOfARankThatNeverStartsMpi) {
  if (!started_by_mpirun()) return expect_mpirun(1);
  if (std::getenv("OMPI_COMM_WORLD_RANK") == std::string("1")) raise(SIGSTOP);
  make_mpi_backend({.time_limit = milliseconds(2000)});
  std::exit(6);
}

TEST_F(MpiFaults, AMismatchIsTheSameErrorOnEveryRank) {
  run([](Communicator& communicator) {
    all_reduce(communicator, 10);
    communicator.label("dense/kernel", 7);
    const std::string text = error_of<InvalidArgumentError>(
        [&] { all_reduce(communicator, communicator.rank() == 1 ? 11 : 10); });
    EXPECT_EQ(
        text,
        "[all_reduce] ranks diverged at collective 1: ranks 0 and 2 called all_reduce (sum) of "
        "10 float32 in 1 part, 'dense/kernel', step 7, rank 1 called all_reduce (sum) of 11 "
        "float32 in 1 part, 'dense/kernel', step 7; every rank must call the same "
        "collectives in the same order");
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { communicator.barrier(); }), text);
  });
}

TEST_F(MpiFaults, MismatchOfReduceOps) {
  run([](Communicator& communicator) {
    expect_parts(error_of<InvalidArgumentError>([&] {
                   all_reduce(communicator, 300'000,
                              communicator.rank() == 2 ? ReduceOp::kMax : ReduceOp::kSum);
                 }),
                 {"ranks diverged at collective 0", "rank 2 called all_reduce (max)"});
  });
}

TEST_F(MpiFaults, MismatchOfAllToAllCounts) {
  run([](Communicator& communicator) {
    const std::vector<Buffer> sent(3, floats(communicator.rank() == 1 ? 6 : 5));
    const std::vector<Buffer> received = {floats(5), floats(communicator.rank() == 1 ? 6 : 5),
                                          floats(5)};
    EXPECT_EQ(
        error_of<InvalidArgumentError>([&] { communicator.all_to_all(sent, received)->wait(); }),
        "[all_to_all] ranks diverged at collective 0: rank 1 sent 6 float32 to rank 0, which "
        "expected 5");
  });
}

TEST_F(MpiFaults, ARankThatIsLateIsNamedEverywhere) {
  run(
      [](Communicator& communicator) {
        all_reduce(communicator, 100);
        if (communicator.rank() == 1) wait_for({0, 2});
        EXPECT_EQ(
            error_of<DeadlineExceededError>([&] { all_reduce(communicator, 300'000); }),
            "[all_reduce] rank 1 did not reach collective 1 (all_reduce (sum) of 300000 float32 in "
            "1 part) within 3000 ms; ranks 0 and 2 are waiting");
        arrive(communicator.rank());
      },
      milliseconds(3000));
}

TEST_F(MpiFaults, ARankLeavesEarly) {
  run([](Communicator& communicator) {
    all_reduce(communicator, 1000);
    if (communicator.rank() == 2) return;
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 300'000); }),
                 {"rank 2 has left the group; rank ", "collective 1 "});
  });
}

TEST_F(MpiFaults, AMessageOfAnotherSize) {
  run([](Communicator& communicator) {
    const std::string text = error_of<InvalidArgumentError>([&] {
      const Buffer buffer = floats(communicator.rank() == 0 ? 3 : 4);
      if (communicator.rank() == 0) communicator.send(buffer, 1)->wait();
      if (communicator.rank() == 1) communicator.recv(buffer, 0)->wait();
      communicator.barrier()->wait();
    });
    EXPECT_EQ(text, "[recv] rank 0 sent 3 float32, rank 1 expected 4 float32");
  });
}

// Only the receiver sees the mismatch; it makes no further call until the others have been
// informed.
TEST_F(MpiFaults, AnErrorThatIsMetWhileARankComputes) {
  run([](Communicator& communicator) {
    const auto expect_error = [](const std::function<void()>& call) {
      EXPECT_EQ(error_of<InvalidArgumentError>(call),
                "[recv] rank 0 sent 3 float32, rank 1 expected 4 float32");
    };
    if (communicator.rank() == 1) {
      const auto work = communicator.recv(floats(4), 0);
      arrive(1);
      wait_for({0, 2});
      expect_error([&] { communicator.barrier(); });
      return expect_error([&] { work->wait(); });
    }
    wait_for({1});
    expect_error([&] {
      if (communicator.rank() == 0) communicator.send(floats(3), 1)->wait();
      communicator.barrier()->wait();
    });
    arrive(communicator.rank());
  });
}

TEST_F(MpiFaults, ASubGroupThatARankDoesNotJoin) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  run(
      [](Communicator& communicator) {
        const int ranks[] = {0, 2};
        if (communicator.rank() == 0) {
          const testing::LogFile log;
          const std::string who = "rank 2 did not join group '" + subgroup_name("0", ranks, 0);
          expect_parts(error_of<DeadlineExceededError>([&] { communicator.split(ranks); }),
                       {who.c_str(), "rank 0 is waiting"});
          expect_parts(log.text(), {"warning: [mpi] ", who.c_str()});
          arrive(0);
        }
        wait_for({0});
      },
      milliseconds(3000));
}

// mpirun ends the job.
TEST_F(MpiFaults, ARankIsKilled) {
  if (!started_by_mpirun()) {
    EXPECT_NE(run_this_test_by_mpirun(3), 0);
    return;
  }
  run([](Communicator& communicator) {
    all_reduce(communicator, 10);
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    all_reduce(communicator, 10);
  });
}

TEST_F(MpiFaults, AJobThatTakesItselfForAnother) {
  if (!started_by_mpirun()) {
    EXPECT_EQ(run_this_test_by_mpirun(2), 0);
    return;
  }
  expect_parts(
      error_of<FailedPreconditionError>([] { make_mpi_backend({.rank = 0, .size = 3}); }),
      {"[mpi] mpirun assigned rank ", " of 2 to this process, but the job expects rank 0 of 3"});
}

}  // namespace
}  // namespace tandem::mpi_faults_test
