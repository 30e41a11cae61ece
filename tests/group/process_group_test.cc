// Process groups: their lifetime, and failures of their ranks.
#include <signal.h>
#include <unistd.h>

#include "comm/rendezvous/rendezvous.h"
#include "device/device_manager.h"
#include "group/connect.h"
#include "group/process_group_impl.h"
#include "support/errors.h"
#include "support/mount_namespace.h"
#include "support/mpirun.h"
#include "support/process_groups.h"
#include "support/processes.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::process_group_test {
namespace {

using std::chrono::milliseconds;
using namespace testing;

TEST(ProcessGroup, UninitialisedIsAnError) {
  const std::string text =
      "Default process group has not been initialized, please make sure to call "
      "init_process_group.";
  const auto error = [](const std::function<void()>& call) {
    return error_of<FailedPreconditionError>(call);
  };
  EXPECT_FALSE(comm::is_initialized());
  EXPECT_EQ(error([] { comm::get_rank(); }), "[get_rank] " + text);
  EXPECT_EQ(error([] { comm::get_world_size(); }), "[get_world_size] " + text);
  EXPECT_EQ(error([] { comm::get_backend(); }), "[get_backend] " + text);
  EXPECT_EQ(error([] { comm::all_reduce(constant(1.0)); }), "[all_reduce] " + text);
  EXPECT_EQ(error([] { comm::new_group(); }), "[new_group] " + text);
  EXPECT_EQ(error([] { comm::destroy_process_group(); }), "[destroy_process_group] " + text);
  EXPECT_EQ(error([] { comm::monitored_barrier(); }), "[monitored_barrier] " + text);
}

TEST(ProcessGroup, TakesTheUrlsOfTheRendezvous) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  const auto error = [](const comm::InitOptions& options) {
    return error_of<InvalidArgumentError>([&] { comm::init_process_group(options); });
  };
  const std::string beginning = "[rendezvous] Error initializing tandem using ";
  EXPECT_EQ(error({}),
            beginning + "env:// rendezvous: environment variable RANK expected, but not set");
  EXPECT_EQ(error({.init_method = "tcp://127.0.0.1:1", .rank = 0}),
            beginning + "tcp:// rendezvous: world size parameter missing");
  expect_parts(error({.init_method = "http://x"}), {"No rendezvous handler for http://"});
  EXPECT_EQ(error({.backend = "glo"}),
            "[connect] Invalid backend: 'glo'; expected one of auto, shm, gloo, mpi, hierarchical, "
            "nccl");
  EXPECT_FALSE(comm::is_initialized());

  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(testing::free_port()).c_str(), 1);
  comm::init_process_group();
  EXPECT_TRUE(comm::is_initialized());
  EXPECT_EQ(comm::get_rank(), 0);
  EXPECT_EQ(comm::get_world_size(), 1);
  EXPECT_EQ(comm::get_backend(), "shm");
  EXPECT_EQ(error_of<FailedPreconditionError>([] { comm::init_process_group(); }),
            "[init_process_group] trying to initialize the default process group twice!");
  comm::destroy_process_group();
  EXPECT_FALSE(comm::is_initialized());
  comm::init_process_group();  // again, at the same address
  EXPECT_EQ(comm::all_reduce(constant(3)).item<std::int32_t>(), 3);
  comm::destroy_process_group();
}

TEST(ProcessGroup, InitialisesNoDevices) {
  expect_group({.size = 2}, [](int) {
    EXPECT_FALSE(DeviceManager::get().initialized());
    EXPECT_EQ(comm::get_backend(), "shm");  // all ranks are on this host
    comm::all_reduce(constant(1.0));
    EXPECT_TRUE(DeviceManager::get().initialized());
  });
}

TEST(ProcessGroup, MpirunStartsItsRanks) {
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  if (!started_by_mpirun()) {
    EXPECT_EQ(run_this_test_by_mpirun(3), 0);
    return;
  }
  comm::init_process_group({.backend = "mpi", .timeout = testing::kFarAway});
  const int rank = comm::get_rank();
  EXPECT_EQ(comm::get_backend(), "mpi");
  EXPECT_EQ(comm::all_reduce(constant(rank)).item<std::int32_t>(), 3);
  const comm::ProcessGroup last = comm::new_group({2, 1});
  if (rank > 0) {
    EXPECT_EQ(comm::all_reduce(constant(rank), {.group = last}).item<std::int32_t>(), 3);
  }
  EXPECT_EQ(comm::all_gather_object(std::to_string(rank)),
            (std::vector<std::string>{"0", "1", "2"}));
  comm::destroy_process_group();
}

// Errors of a subgroup name ranks by their numbers in the job.
TEST(ProcessGroup, ErrorsOfSomeRanksNameRanksOfTheJob) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    const Arrivals reported;
    expect_group({.size = 4, .backend = backend, .timeout = milliseconds(3000)}, [&](int rank) {
      const comm::ProcessGroup group = comm::new_group({3, 1});
      const comm::ProcessGroup other = comm::new_group({1, 3});
      if (rank == 3) return reported.wait_for(1);
      if (rank != 1) return;
      expect_parts(
          error_of<DeadlineExceededError>(
              [&] { comm::broadcast(constant(1), 3, {.group = group}); }),
          {"rank 3 did not reach collective 0 (broadcast of 1 int32 in 1 part from rank 3)",
           "; rank 1 is waiting"});
      expect_parts(
          error_of<DeadlineExceededError>(
              [&] { comm::recv(Shape{1}, 3, {.dtype = int32, .group = other}); }),
          {"[recv] rank 1 waited 3000 ms for rank 3: recv of 1 int32 in 1 part from rank 3"});
      reported.arrive();
    });
  }
}

TEST(ProcessGroup, MismatchesOfSomeRanksNameRanksOfTheJob) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    expect_group({.size = 3, .backend = backend}, [](int rank) {
      const comm::ProcessGroup group = comm::new_group({2, 1});
      if (rank == 0) return;
      expect_parts(
          error_of<InvalidArgumentError>(
              [&] { comm::all_reduce(full({rank}, 1.0), {.group = group}); }),
          {"rank 2 called all_reduce (sum) of 2 ", "rank 1 called all_reduce (sum) of 1 "});
    });
  }
}

// Its connections may be reset before the others have handed them to Gloo.
TEST(ProcessGroup, ARankMayLeaveBeforeTheOthersHaveJoined) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  for (int i = 0; i < 20; ++i)
    expect_group({.size = 4, .backend = "gloo"}, [](int rank) {
      const comm::ProcessGroup group = comm::new_group({3, 1});
      if (rank % 2 == 0) return;
      EXPECT_EQ(comm::all_reduce(constant(1), {.group = group}).item<std::int32_t>(), 2);
    });
}

// "auto" does not use shared memory if there is room for only a few groups.
TEST(ProcessGroup, AutoTakesGlooWhereSharedMemoryIsSmall) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  const ExitCodes alone = run_processes(1, [](int) {
    if (!testing::enter_mount_namespace()) return;
    ASSERT_EQ(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m"), 0);
    expect_group({.size = 8}, [](int) {
      EXPECT_EQ(comm::get_backend(), "gloo");
      EXPECT_EQ(comm::all_reduce(constant(1)).item<std::int32_t>(), 8);
    });
    expect_group({.size = 2}, [](int) { EXPECT_EQ(comm::get_backend(), "shm"); });
  });
  EXPECT_EQ(alone, ExitCodes(1, 0));
}

TEST(ProcessGroup, DuplicatesAreIndependent) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    expect_group({.size = 3, .backend = backend}, [](int rank) {
      const auto group = comm::detail::default_group("test");
      const auto other = group->duplicate(group->device());
      EXPECT_EQ(other->rank(), rank);
      EXPECT_EQ(&other->device(), &group->device());
      // One runs while the other is used, in a different order on each rank.
      if (rank == 0) {
        comm::Work mine = comm::all_reduce_async(full({1000}, 1.0));
        other->barrier()->wait();
        mine.wait();
      } else {
        const auto work = other->barrier();
        comm::all_reduce(full({1000}, 1.0));
        work->wait();
      }
      for (DeviceImpl* device : DeviceManager::get().devices(DeviceType::kCpu, "test")) {
        const auto on_cpu = group->duplicate(*device);
        EXPECT_EQ(&on_cpu->device(), device);
        on_cpu->barrier()->wait();
      }
    });
  }
}

// --- traced functions ---

TEST(ProcessGroup, CollectivesInTracedFunctions) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    expect_group({.size = 3, .backend = backend}, [](int rank) {
      int calls = 0;
      const auto step = function([&](const Tensor& x) {
        ++calls;
        const Tensor sum = comm::all_reduce(x * 2.0, {.op = ReduceOp::kMean});
        return comm::broadcast(sum + x, 1);
      });
      for (int i = 0; i < 4; ++i) {
        const Tensor y = step(full({5}, 3.0 * rank + i));
        testing::expect_tensor(y, float32, {5}, std::vector<double>(5, 2.0 * (3.0 + i) + 3.0 + i));
        // Both use one communicator, so eager calls run between replays.
        EXPECT_EQ(comm::all_reduce(constant(1)).item<std::int32_t>(), 3);
      }
      EXPECT_EQ(calls, 1);
      const auto gathered = function([](const Tensor& x) {
        comm::all_gather_object("text");
        return x;
      });
      expect_parts(error_of<UnimplementedError>([&] { gathered(full({2}, 1.0)); }),
                   {"[all_gather_object] cannot be part of a traced function"});
    });
  }
}

TEST(ProcessGroup, ATracedFunctionMayOutliveTheGroup) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    const TemporaryDirectory folder;
    const auto codes = run_processes(2, [&](int rank) {
      const ThreadBudget one(1);
      comm::init_process_group(testing::meeting_in(folder, {.size = 2, .backend = backend}, rank));
      const auto sum = function([](const Tensor& x) { return comm::all_reduce(x); });
      EXPECT_EQ(sum(constant(2.0)).item<float>(), 4.0f);
      comm::destroy_process_group();
    });
    EXPECT_EQ(codes, ExitCodes(2, 0));
  }
}

// --- faults ---

TEST(ProcessGroupFaults, ARankNeverStarts) {
  const TemporaryDirectory folder;
  const auto codes = run_processes(2, [&](int process) {
    const int rank = process == 0 ? 0 : 2;
    expect_parts(error_of<Error>([&] {
                   comm::init_process_group(testing::meeting_in(
                       folder, {.size = 3, .timeout = milliseconds(5000)}, rank));
                 }),
                 {"rank 1 of 3 did not join within 5000 ms"});
    EXPECT_FALSE(comm::is_initialized());
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

TEST(ProcessGroupFaults, ARankIsKilled) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    const auto codes = run_group({.size = 3, .backend = backend}, [](int rank) {
      comm::all_reduce(constant(1.0));
      if (rank == 1) kill(getpid(), SIGKILL);
      const std::string text = error_of<Error>([] {
        for (int i = 0; i < 10; ++i) comm::all_reduce(full({100'000}, 1.0));
      });
      expect_parts(text, {"rank 1"});
      // From then on, every call throws the group's error.
      EXPECT_EQ(error_of<Error>([] { comm::barrier(); }), text);
    });
    EXPECT_EQ(codes, (ExitCodes{0, 128 + SIGKILL, 0})) << backend;
  }
}

// Rank 0, which runs the job's server, ends with the error that it gets. Rank 2 makes its call
// after both are gone, and is still informed of the first failure.
TEST(ProcessGroupFaults, TheFirstFailureIsNamedAfterALaterOne) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    const auto first = testing::shared_with_forks<std::atomic<pid_t>>();
    const auto codes = run_group({.size = 3, .backend = backend}, [&](int rank) {
      if (rank == 0) *first = getpid();
      comm::barrier();
      if (rank == 1) kill(getpid(), SIGKILL);
      if (rank == 2) testing::eventually([&] { return kill(*first, 0) != 0; });
      expect_parts(error_of<Error>([] { comm::all_reduce(full({100'000}, 1.0)); }), {"rank 1"});
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    });
    EXPECT_EQ(codes, (ExitCodes{0, 128 + SIGKILL, 0})) << backend;
  }
}

TEST(ProcessGroupFaults, MismatchOfShapes) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    expect_group({.size = 3, .backend = backend}, [](int rank) {
      comm::barrier();
      expect_parts(
          error_of<InvalidArgumentError>([&] { comm::all_reduce(full({rank == 2 ? 7 : 5}, 1.0)); }),
          {"[all_reduce] ranks diverged at collective 1", "rank 2 called", "of 7 float32",
           "of 5 float32"});
    });
  }
}

TEST(ProcessGroupFaults, ARankThatIsLateIsNamed) {
  const Arrivals reported;
  expect_group({.size = 3, .timeout = milliseconds(5000)}, [&](int rank) {
    comm::barrier();
    if (rank == 1) reported.wait_for(2);
    expect_parts(error_of<DeadlineExceededError>([] { comm::all_reduce(zeros({300'000})); }),
                 {"[all_reduce] rank 1 did not reach collective 1", "within 5000 ms"});
    reported.arrive();
  });
}

TEST(ProcessGroupFaults, ARankAborts) {
  const auto codes = run_group({.size = 3}, [](int rank) {
    comm::barrier();
    if (rank == 1) {
      comm::detail::report_failure("InvalidArgumentError: [MatMul] its own error");
      _exit(3);
    }
    expect_parts(error_of<Error>([] {
                   for (int i = 0; i < 10; ++i) comm::all_reduce(constant(1.0));
                 }),
                 {"rank 1"});
  });
  EXPECT_EQ(codes, (ExitCodes{0, 3, 0}));
}

TEST(MonitoredBarrier, NamesTheRanksThatAreMissing) {
  const Arrivals reported;
  expect_group({.size = 4}, [&](int rank) {
    for (int i = 0; i < 3; ++i) comm::monitored_barrier();
    const bool late = rank == 1 || rank == 3;
    if (late) reported.wait_for(2);
    EXPECT_EQ(error_of<DeadlineExceededError>(
                  [] { comm::monitored_barrier({.timeout = milliseconds(3000)}); }),
              "[monitored_barrier] ranks 1 and 3 failed to pass monitored_barrier in 3000 ms");
    reported.arrive();
    // The group is still usable.
    comm::monitored_barrier();
    EXPECT_EQ(comm::all_reduce(constant(1)).item<std::int32_t>(), 4);
  });
}

TEST(MonitoredBarrier, WithoutRankZero) {
  const Arrivals reported;
  expect_group({.size = 3}, [&](int rank) {
    const comm::ProcessGroup group = comm::new_group({2, 1});
    if (rank == 0) return reported.wait_for(2);
    comm::monitored_barrier({.group = group});
    EXPECT_EQ(error_of<DeadlineExceededError>(
                  [] { comm::monitored_barrier({.timeout = milliseconds(200)}); }),
              "[monitored_barrier] rank 0 failed to pass monitored_barrier in 200 ms");
    reported.arrive();
  });
}

}  // namespace
}  // namespace tandem::process_group_test
