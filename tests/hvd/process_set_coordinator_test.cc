// Names, orders, the cache, process sets, join, mismatches and failures.
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/files.h"
#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/comm.h"
#include "tandem/math.h"

namespace tandem::process_set_coordinator_test {
namespace {

using testing::Arrivals;
using testing::expect_error;
using testing::expect_hvd;
using testing::run_hvd;
using testing::values_of;

Tensor numbers(int rank, int tensor, std::int64_t count = 10) {
  return full({count}, static_cast<double>(100 * tensor + rank), {.dtype = float32});
}

// Many tensors, repeatedly, in a different order on each rank.
void submit_in_any_order(int rank, int ranks) {
  constexpr int kTensors = 20;
  for (int step = 0; step < 10; ++step) {
    std::vector<hvd::Handle> handles(kTensors);
    for (int i = 0; i < kTensors; ++i) {
      const int tensor = (i * (rank % 2 == 0 ? 1 : 7) + 3 * rank + step) % kTensors;
      handles[static_cast<std::size_t>(tensor)] =
          hvd::allreduce_async(numbers(rank, tensor, 1 + 50 * tensor),
                               {.name = std::to_string(tensor), .op = hvd::kSum});
    }
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      const Tensor sum = hvd::synchronize(handles[static_cast<std::size_t>(tensor)]);
      ASSERT_EQ(sum.size(), 1 + 50 * tensor);
      for (double value : values_of(sum))
        ASSERT_EQ(value, 100.0 * tensor * ranks + ranks * (ranks - 1) / 2.0);
    }
  }
}

TEST(HvdCoordinator, RanksMaySubmitInDifferentOrders) {
  for (const char* capacity : {"1024", "0", "7"})
    for (const char* threshold : {"134217728", "0", "3000"})
      expect_hvd(3, [](int rank) { submit_in_any_order(rank, 3); },
                 {{"HOROVOD_CACHE_CAPACITY", capacity}, {"HOROVOD_FUSION_THRESHOLD", threshold}});
}

TEST(HvdCoordinator, PollDoesNotWait) {
  const Arrivals polled;
  expect_hvd(2, [&](int rank) {
    if (rank == 1) polled.wait_for(1);
    const hvd::Handle handle = hvd::allreduce_async(constant({1.0f}), {.name = "polled"});
    if (rank == 0) {
      EXPECT_FALSE(hvd::poll(handle));
      polled.arrive();
    }
    // The background thread completes it.
    EXPECT_TRUE(testing::eventually([&] { return hvd::poll(handle); }));
    EXPECT_EQ(hvd::synchronize(handle).item<float>(), 1.0f);
  });
}

TEST(HvdCoordinator, ANameInProgressIsRefused) {
  expect_hvd(2, [](int rank) {
    if (rank == 0) {
      const hvd::Handle first = hvd::allreduce_async(constant({1.0f}), {.name = "same"});
      expect_error<InvalidArgumentError>(
          [] { hvd::allreduce_async(constant({1.0f}), {.name = "same"}); },
          "Requested to allreduce, allgather, or broadcast a tensor with the same name as another "
          "tensor that is "
          "currently being processed.");
      hvd::barrier();
      hvd::synchronize(first);
    } else {
      hvd::barrier();
      hvd::allreduce(constant({1.0f}), {.name = "same"});
    }
  });
}

TEST(HvdCoordinator, MismatchedRanksGetTheSameErrorAndContinue) {
  expect_hvd(3, [](int rank) {
    for (int again = 0; again < 2; ++again) {
      expect_error<InvalidArgumentError>(
          [&] { hvd::allreduce(full({rank == 2 ? 3 : 2}, 1.0), {.name = "a"}); },
          "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [2], but another "
          "rank sent a tensor of "
          "shape [3]. ('a': rank 0 and rank 2)");
      expect_error<InvalidArgumentError>(
          [&] {
            if (rank == 1)
              hvd::allgather(constant({1.0f}), {.name = "b"});
            else
              hvd::allreduce(constant({1.0f}), {.name = "b"});
          },
          "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ALLGATHER.");
      expect_error<InvalidArgumentError>(
          [&] { hvd::broadcast(constant({1.0f}), rank == 0 ? 0 : 1, {.name = "c"}); },
          "Mismatched BROADCAST root ranks: One rank specified root rank 0, but another rank "
          "specified root rank 1.");
      expect_error<InvalidArgumentError>(
          [&] {
            hvd::allreduce(constant({1.0f}, {.dtype = rank == 0 ? float32 : float64}),
                           {.name = "d"});
          },
          "Mismatched data types: One rank had type float32, but another rank had type float64.");
      // A cached name mismatches, too; operations that match continue.
      EXPECT_EQ(hvd::allreduce(full({4}, 1.0), {.name = "e", .op = hvd::kSum}).size(), 4);
    }
  });
}

TEST(HvdCoordinator, ACachedNameMayChangeItsShape) {
  expect_hvd(2, [](int rank) {
    for (std::int64_t count : {3, 3, 5, 5, 3}) {
      const Tensor sum =
          hvd::allreduce(numbers(rank, 1, count), {.name = "changing", .op = hvd::kSum});
      EXPECT_EQ(values_of(sum), std::vector<double>(static_cast<std::size_t>(count), 201.0));
    }
    expect_error<InvalidArgumentError>(
        [&] { hvd::allreduce(numbers(rank, 1, rank == 0 ? 3 : 4), {.name = "changing"}); },
        "Mismatched ALLREDUCE tensor shapes");
    EXPECT_EQ(hvd::allreduce(numbers(rank, 1, 3), {.name = "changing", .op = hvd::kSum}).size(), 3);
  });
}

TEST(HvdCoordinator, JoinedRanksCountAsZeros) {
  expect_hvd(3, [](int rank) {
    for (int round = 0; round < 2; ++round) {
      // Rank r has data for r + 1 steps.
      for (int step = 0; step <= rank; ++step) {
        const Tensor sum = hvd::allreduce(constant({1.0f, 2.0f}), {.name = "x", .op = hvd::kSum});
        EXPECT_EQ(values_of(sum)[0], 3.0 - step);
        const Tensor mean = hvd::allreduce(constant({3.0f}), {.name = "mean"});
        EXPECT_FLOAT_EQ(mean.item<float>(), 3.0f - static_cast<float>(step));
        EXPECT_EQ(hvd::allreduce(constant({1.0f}),
                                 {.name = std::to_string(10 * round + step), .op = hvd::kSum})
                      .item<float>(),
                  3.0f - static_cast<float>(step));
      }
      if (rank == 2)
        expect_error<InvalidArgumentError>([] { hvd::allgather(constant({1.0f})); },
                                           "Allgather is not supported with Join at this time.");
      EXPECT_EQ(hvd::join(), 2);
    }
    EXPECT_EQ(hvd::allgather(constant({1.0f}), {.name = "again"}).size(), 3);
  });
}

TEST(HvdCoordinator, ProcessSetsAreIndependent) {
  expect_hvd(4, [](int rank) {
    const hvd::ProcessSet even = hvd::add_process_set({0, 2});
    const hvd::ProcessSet odd = hvd::add_process_set({3, 1});
    EXPECT_EQ(even.id(), 1);
    EXPECT_EQ(odd.ranks(), (std::vector<int>{1, 3}));
    EXPECT_EQ(even.included(), rank % 2 == 0);
    EXPECT_EQ(odd.rank(), rank % 2 == 0 ? -1 : rank / 2);
    const hvd::ProcessSet& mine = rank % 2 == 0 ? even : odd;
    for (int i = 0; i < 5; ++i) {
      const Tensor sum = hvd::allreduce(constant({static_cast<float>(rank)}),
                                        {.name = "s", .op = hvd::kSum, .process_set = mine});
      EXPECT_EQ(sum.item<float>(), rank % 2 == 0 ? 2.0f : 4.0f);
      EXPECT_EQ(hvd::broadcast(constant({rank}), rank % 2 == 0 ? 2 : 1, {.process_set = mine})
                    .item<std::int32_t>(),
                rank % 2 == 0 ? 2 : 1);
    }
    expect_error<InvalidArgumentError>(
        [&] { hvd::allreduce(constant({1.0f}), {.process_set = rank % 2 == 0 ? odd : even}); },
        "is not in process set");
    // Errors name ranks of the job, not ranks of the set.
    expect_error<InvalidArgumentError>(
        [&] {
          hvd::allreduce(full({rank < 2 ? 1 : 2}, 1.0),
                         {.name = "mismatched", .process_set = mine});
        },
        rank % 2 == 0 ? "('mismatched': rank 0 and rank 2)" : "('mismatched': rank 1 and rank 3)");
    EXPECT_TRUE(hvd::remove_process_set(even));
    expect_error<InvalidArgumentError>(
        [&] { hvd::allreduce(constant({1.0f}), {.process_set = even}); }, "or the set was removed");
    EXPECT_FALSE(hvd::remove_process_set(hvd::global_process_set()));
    EXPECT_EQ(hvd::allreduce(constant({1.0f}), {.op = hvd::kSum}).item<float>(), 4.0f);
  });
}

TEST(HvdCoordinator, ProcessSetsMustBeTheSameOnEveryRank) {
  expect_hvd(2, [](int rank) {
    expect_error<InvalidArgumentError>(
        [&] { hvd::add_process_set({rank}); },
        "every rank must name the same ranks: rank 0 named [0], rank 1 [1]");
    expect_error<InvalidArgumentError>(
        [&] {
          hvd::add_process_set({0, 2});
        },
        "expected different ranks of 0 to 1, got [0, 2]");
    EXPECT_EQ(hvd::add_process_set({1}).included(), rank == 1);
  });
}

TEST(HvdCoordinator, AJobMayCallInitAgain) {
  const int port = testing::free_port();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    testing::set_rank(rank, 2, port);
    for (int again = 0; again < 3; ++again) {
      hvd::init();
      EXPECT_EQ(hvd::allreduce(constant({1.0f}), {.name = "x", .op = hvd::kSum}).item<float>(),
                2.0f);
      hvd::shutdown();
      EXPECT_FALSE(hvd::is_initialized());
      expect_error<FailedPreconditionError>([] { hvd::barrier(); }, "use hvd.init()");
    }
  });
  for (int code : codes) EXPECT_EQ(code, 0);
}

TEST(HvdCoordinator, UsesTheJobOfAProcessGroup) {
  const int port = testing::free_port();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    testing::set_rank(rank, 2, port);
    comm::init_process_group();
    hvd::init();
    EXPECT_EQ(hvd::rank(), rank);
    EXPECT_EQ(hvd::allreduce(constant({1.0f}), {.op = hvd::kSum}).item<float>(), 2.0f);
    EXPECT_EQ(comm::all_reduce(constant({2.0f})).item<float>(), 4.0f);
    hvd::shutdown();
    EXPECT_EQ(comm::all_reduce(constant({3.0f})).item<float>(), 6.0f);
    comm::destroy_process_group();
  });
  for (int code : codes) EXPECT_EQ(code, 0);
}

// One thread waits for an operation that the others submit late; their other operations continue
// meanwhile.
TEST(HvdCoordinator, ThreadsMayWaitForDifferentOperations) {
  expect_hvd(2, [](int rank) {
    std::thread other([&] {
      for (int i = 0; i < 50; ++i)
        EXPECT_EQ(
            hvd::allreduce(constant({1.0f}), {.name = "often", .op = hvd::kSum}).item<float>(),
            2.0f);
    });
    if (rank == 1) other.join();
    EXPECT_EQ(hvd::allreduce(constant({2.0f}), {.name = "late", .op = hvd::kSum}).item<float>(),
              4.0f);
    if (rank == 0) other.join();
  });
}

// Threads that submit or wait meanwhile get a typed error, and their tensors stay valid.
void shut_down_under_submitters(int rank) {
  const hvd::ProcessSet pair = hvd::add_process_set({0, 1});
  std::atomic<int> ended = 0, under_way = 0;
  const auto submit_for_ever = [&](const std::string& name, const hvd::ProcessSet& set) {
    try {
      for (int i = 0;; ++i) {
        const hvd::Handle first = hvd::allreduce_async(
            full({1000}, 1.0), {.name = name, .op = hvd::kSum, .process_set = set});
        const hvd::Handle second = hvd::allgather_async(
            constant({1.0f}), {.name = name + "/gathered", .process_set = set});
        EXPECT_EQ(values_of(hvd::synchronize(first))[0], 2.0);
        hvd::synchronize(second);
        if (i == 5) ++under_way;
      }
    } catch (const AbortedError& error) {
      EXPECT_NE(std::string(error.what()).find("shut down"), std::string::npos) << error.what();
    } catch (const FailedPreconditionError& error) {
      EXPECT_NE(std::string(error.what()).find("not been initialized"), std::string::npos);
    }
    ++ended;
  };
  // Operations that are never completed must be freed after shutdown. They are submitted first,
  // because the other rank may shut down as soon as its threads have ended.
  const hvd::Handle left =
      hvd::allreduce_async(full({1000}, 1.0), {.name = "of rank " + std::to_string(rank)});
  std::thread one([&] { submit_for_ever("one", {}); });
  std::thread other([&] { submit_for_ever("other", {}); });
  std::thread third([&] { submit_for_ever("third", pair); });
  while (under_way < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  hvd::shutdown();
  for (std::thread* thread : {&one, &other, &third}) thread->join();
  EXPECT_EQ(ended, 3);
  expect_error<AbortedError>([&] { hvd::synchronize(left); }, "shut down");
}

TEST(HvdCoordinator, ShutdownEndsWhatOtherThreadsSubmit) {
  for (const char* backend : {"shm", "gloo"})
    expect_hvd(2, shut_down_under_submitters, {{"HOROVOD_CPU_OPERATIONS", backend}});
}

// --- failures ---

TEST(HvdFaults, ARankThatIsKilledIsNamed) {
  for (const char* backend : {"shm", "gloo"}) {
    const ExitCodes codes =
        run_hvd(3,
                [](int rank) {
                  for (int step = 0;; ++step) {
                    if (rank == 1 && step == 20) kill(getpid(), SIGKILL);
                    try {
                      hvd::allreduce(full({1000}, 1.0), {.name = "x"});
                    } catch (const Error& error) {
                      const std::string kind = error.kind();
                      EXPECT_TRUE(kind == "UnavailableError" || kind == "AbortedError") << kind;
                      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos)
                          << error.what();
                      return;
                    }
                  }
                },
                {{"HOROVOD_CPU_OPERATIONS", backend}});
    EXPECT_EQ(codes, (ExitCodes{0, 128 + SIGKILL, 0}));
  }
}

TEST(HvdFaults, ARankThatEndsEarlyWithoutJoinAbortsTheOthers) {
  for (bool explicitly : {true, false}) {
    const int port = testing::free_port();
    const ExitCodes codes = run_processes(3, [&](int rank) {
      testing::set_rank(rank, 3, port);
      hvd::init();
      hvd::allreduce(constant({1.0f}), {.name = "x"});
      if (rank == 2 && explicitly) return hvd::shutdown();
      if (rank == 2) std::exit(0);  // as if main() returned
      for (int again = 0; again < 2; ++again)
        expect_error<AbortedError>(
            [] { hvd::allreduce(constant({1.0f}), {.name = "x"}); },
            "Horovod has been shut down. This was caused by an exception on one of the "
            "ranks or an attempt to allreduce");
      hvd::shutdown();
    });
    for (int code : codes) EXPECT_EQ(code, 0);
  }
}

TEST(HvdFaults, ARankThatDoesNotSubmitIsNamedAtTheLimit) {
  const auto codes = run_hvd(
      3,
      [](int rank) {
        hvd::allreduce(constant({1.0f}), {.name = "all have"});
        expect_error<DeadlineExceededError>(
            [&] {
              if (rank == 1)
                hvd::allreduce(constant({1.0f}), {.name = "another"});
              else
                hvd::allreduce(constant({1.0f}), {.name = "this"});
            },
            "1: [this]");
      },
      {{"HOROVOD_STALL_CHECK_TIME_SECONDS", "2"}, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5"}});
  for (int code : codes) EXPECT_EQ(code, 0);
}

TEST(HvdFaults, ARankThatNeverStartsIsNamed) {
  const int port = testing::free_port();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    testing::set_rank(rank, 3, port);
    // The first rank to fail reports the reason to the others.
    expect_error<Error>([] { hvd::init({.timeout = std::chrono::seconds(5)}); },
                        "rank 2 of 3 did not join within 5000 ms");
    EXPECT_FALSE(hvd::is_initialized());
  });
  for (int code : codes) EXPECT_EQ(code, 0);
}

TEST(HvdFaults, WrongSettingsAreNamed) {
  setenv("HOROVOD_FUSION_THRESHOLD", "much", 1);
  expect_error<InvalidArgumentError>([] { hvd::init(); }, "HOROVOD_FUSION_THRESHOLD");
  unsetenv("HOROVOD_FUSION_THRESHOLD");
}

// --- timeline and autotuning ---

TEST(HvdCoordinator, TheTimelineHasThePhasesOfEachTensor) {
  const testing::TemporaryDirectory folder;
  const std::string file = (folder.path() / "timeline.json").string();
  expect_hvd(2,
             [](int) {
               for (int i = 0; i < 3; ++i) {
                 hvd::allreduce(constant({1.0f}), {.name = "weights"});
                 hvd::broadcast(constant({1.0f}), 0, {.name = "start"});
               }
             },
             {{"HOROVOD_TIMELINE", file}, {"HOROVOD_TIMELINE_MARK_CYCLES", "1"}});
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  std::map<int, std::string> rows;
  std::map<std::string, std::map<std::string, int>> phases;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") rows[event["pid"]] = event["args"]["name"];
    if (event["ph"] == "X") ++phases[rows[event["pid"]]][event["name"]];
  }
  EXPECT_EQ(phases["weights"]["NEGOTIATE_ALLREDUCE"], 3);
  EXPECT_EQ(phases["weights"]["MEMCPY_IN_FUSION_BUFFER"], 3);
  EXPECT_EQ(phases["weights"]["SHM_ALLREDUCE"], 3);
  EXPECT_EQ(phases["weights"]["MEMCPY_OUT_FUSION_BUFFER"], 3);
  EXPECT_EQ(phases["weights"]["0"], 1);  // rank 0's request; later ones are bits
  EXPECT_EQ(phases["start"]["NEGOTIATE_BROADCAST"], 3);
  EXPECT_EQ(phases["start"]["SHM_BROADCAST"], 3);
  EXPECT_GE(phases["CYCLE"]["CYCLE_START"], 6);
}

TEST(HvdCoordinator, ATimelineThatIsStartedMarksCyclesIfAsked) {
  const testing::TemporaryDirectory folder;
  for (const bool mark : {false, true}) {
    const std::string file = (folder.path() / "timeline.json").string();
    expect_hvd(2, [&](int rank) {
      if (rank == 0) hvd::start_timeline(file, {.mark_cycles = mark});
      for (int i = 0; i < 3; ++i) hvd::allreduce(constant({1.0f}), {.name = "weights"});
      if (rank == 0) hvd::stop_timeline();
      hvd::barrier();
    });
    std::ifstream in(file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    EXPECT_NE(text.find("NEGOTIATE_ALLREDUCE"), std::string::npos);
    EXPECT_EQ(text.find("CYCLE_START") != std::string::npos, mark);
  }
}

TEST(HvdCoordinator, AutotuneLogsItsSamples) {
  const testing::TemporaryDirectory folder;
  const std::string file = (folder.path() / "autotune.csv").string();
  expect_hvd(2,
             [](int rank) {
               for (int i = 0; i < 100; ++i)
                 EXPECT_EQ(values_of(hvd::allreduce(numbers(rank, 1, 1000),
                                                    {.name = "x", .op = hvd::kSum}))[999],
                           201.0);
             },
             {{"HOROVOD_AUTOTUNE", "1"},
              {"HOROVOD_AUTOTUNE_LOG", file},
              {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "4"}});
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "cycle_time_ms,tensor_fusion_threshold_mb,score_bytes_per_us");
  int samples = 0;
  while (std::getline(in, line)) ++samples;
  EXPECT_EQ(samples, 4);
}

}  // namespace
}  // namespace tandem::process_set_coordinator_test
