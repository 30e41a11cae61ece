// Failures and features that are specific to shared memory; process_faults_test.cc has the other
// failures.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "comm/fault_job.h"
#include "comm/shm/group.h"
#include "comm/shm/segment.h"
#include "core/status.h"
#include "support/errors.h"
#include "support/waiting.h"
#include "tandem/config.h"

namespace tandem::shm_faults_test {
namespace {

using std::chrono::milliseconds;
using namespace testing;

using Job = testing::FaultJob;

void run_ranks(const Job& job, const std::function<void(Communicator&)>& body) {
  testing::run_ranks(job, {}, body);
}

TEST(ShmFaults, ARankIsKilledInTheMidstOfACollective) {
  testing::run_ranks({}, {1}, [](Communicator& communicator) {
    all_reduce(communicator, 100);
    const Buffer buffer = floats(10'000'000);  // far more than fits into the rings
    if (communicator.rank() == 1) {
      const auto work = communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      for (int i = 0; i < 5; ++i) communicator.progress();
      kill(getpid(), SIGKILL);
    }
    const std::string text = error_of<AbortedError>([&] {
      communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
    });
    expect_parts(text, {"rank 1 (pid ", ") died", "collective 1 "});
    // Later calls throw the group's error.
    EXPECT_EQ(error_of<AbortedError>([&] { communicator.barrier(); }), text);
  });
}

TEST(ShmFaults, ARankNeverStarts) {
  const Job job{.ranks = 4, .join_limit = milliseconds(3000)};
  const ExitCodes codes = run_processes(3, [&](int process) {
    const int rank = process == 2 ? 3 : process;
    const std::string text = error_of<DeadlineExceededError>([&] { job.join(rank); });
    // The rank that times out last may find that another one has left, but not that all have
    // joined.
    expect_parts(text, {"[shm] rank 2 did not join group 'test' within 3000 ms; ranks 0, 1 and 3"});
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

TEST(ShmFaults, RankZeroNeverStarts) {
  const Job job{.ranks = 2, .join_limit = milliseconds(300)};
  const ExitCodes codes = run_processes(1, [&](int) {
    expect_parts(error_of<DeadlineExceededError>([&] { job.join(1); }),
                 {"[shm] rank 0 did not join group 'test' within 300 ms; rank 1 is waiting"});
  });
  EXPECT_EQ(codes, ExitCodes(1, 0));
}

// Buffers of `count` floats in shared memory, which peers access during a collective.
struct SharedFloats {
  SharedFloats(Communicator& communicator, std::int64_t count, float value)
      : memory(communicator.allocate(static_cast<std::size_t>(count) * sizeof(float))),
        buffer{memory.get(), count, float32} {
    fill(value);
  }
  void fill(float value) const {
    std::fill_n(static_cast<float*>(buffer.data), buffer.count, value);
  }
  bool all_are(float value) const {
    const auto* data = static_cast<const float*>(buffer.data);
    return std::all_of(data, data + buffer.count, [&](float one) { return one == value; });
  }
  std::shared_ptr<void> memory;
  Buffer buffer;
};

TEST(ShmFaults, ALateRankDoesNotTouchTheBuffersOfAnAbortedOne) {
  const Arrivals aborted, came;
  run_ranks({.ranks = 2, .time_limit = milliseconds(300)}, [&](Communicator& communicator) {
    const SharedFloats floats(communicator, 1 << 20, 1.0f);
    const auto call = [&] { communicator.all_reduce({&floats.buffer, 1}, ReduceOp::kSum)->wait(); };
    const auto expect_late = [&] {
      expect_parts(error_of<DeadlineExceededError>(call), {"rank 1 did not reach collective 0"});
    };
    if (communicator.rank() == 1) {
      aborted.wait_for(1);
      expect_late();
      return came.arrive();
    }
    expect_late();
    floats.fill(7.0f);
    aborted.arrive();
    came.wait_for(1);
    EXPECT_TRUE(floats.all_are(7.0f));
  });
}

// Rank 0 leaves before its peer makes the call, or at any moment of the collective: it may have
// worked for both then, so that the peer has its sums.
void leave_an_open_collective(bool before_the_call) {
  const Arrivals allocated, left, came;
  const Job job{.ranks = 2};
  const ExitCodes codes = run_processes(2, [&](int rank) {
    const ThreadBudget one(1);
    auto communicator = job.join(rank);
    const SharedFloats floats(*communicator, 1 << 20, 1.0f);
    allocated.meet(2);  // allocate() fails once a rank has left
    const auto start = [&] {
      return communicator->all_reduce({&floats.buffer, 1}, ReduceOp::kSum);
    };
    if (rank == 1) {
      if (before_the_call) left.wait_for(1);
      std::string error;
      try {
        const auto work = start();
        left.wait_for(1);
        work->wait();
      } catch (const AbortedError& aborted) {
        error = aborted.what();
      }
      if (before_the_call || !error.empty())
        expect_parts(error,
                     {"rank 0 (pid ", ") has left the group before collective 0 (all_reduce"});
      else
        EXPECT_TRUE(floats.all_are(2.0f));
      return came.arrive();
    }
    start().reset();
    communicator.reset();
    floats.fill(7.0f);
    left.arrive();
    came.wait_for(1);
    EXPECT_TRUE(floats.all_are(7.0f));
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

TEST(ShmFaults, ARankThatLeavesAnOpenCollectiveGetsItsBuffersBack) {
  leave_an_open_collective(true);
  for (int i = 0; i < 5; ++i) leave_an_open_collective(false);
}

// The peer aborts while this rank is working on its buffers.
TEST(ShmFaults, AbortWaitsForPeersThatUseTheBuffers) {
  const Arrivals inside;
  const auto released = testing::shared_with_forks<std::atomic<bool>>();
  const auto store = std::make_shared<ForkedStore>();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    shm::ShmGroup group({.store = store, .name = "test", .rank = rank, .size = 2});
    if (rank == 0) {
      inside.wait_for(1);
      group.abort(GroupFailure::kAborted, "enough");
      EXPECT_TRUE(*released);
      return;
    }
    const auto has_failed = [&] {
      try {
        group.throw_if_failed();
        return false;
      } catch (const AbortedError&) {
        return true;
      }
    };
    {
      const shm::ShmGroup::PeerAccess access(group);
      EXPECT_TRUE(access.granted());
      inside.arrive();
      EXPECT_TRUE(testing::eventually(has_failed));
      *released = true;
    }
    EXPECT_FALSE(shm::ShmGroup::PeerAccess(group).granted());
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

std::vector<std::string> segments() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().filename().string().starts_with("tandem-"))
      names.push_back(entry.path().filename().string());
  return names;
}

bool is_there(const std::string& name) {
  return std::filesystem::exists(fmt::format("/dev/shm{}", name));
}

TEST(ShmFaults, RemovesSegmentsOfCrashedJobs) {
  const auto name = testing::shared_with_forks<std::array<char, 256>>();
  const ExitCodes crashed = run_processes(1, [&](int) {
    const Segment segment = Segment::create(1 << 20);
    std::snprintf(name->data(), name->size(), "%s", segment.name().c_str());
    EXPECT_TRUE(is_there(name->data()));
    kill(getpid(), SIGKILL);
  });
  EXPECT_EQ(crashed, ExitCodes(1, 128 + SIGKILL));
  // Creating a segment removes stale ones (another test may have done so by now). It must not
  // remove live segments or files that only look like segments.
  const Segment alive = Segment::create(4096);
  EXPECT_FALSE(is_there(name->data()));
  const std::string other = fmt::format("/tandem-else-{}", getpid());
  std::ofstream("/dev/shm" + other) << "x";
  run_ranks({.ranks = 2}, [](Communicator& communicator) { all_reduce(communicator, 10); });
  EXPECT_TRUE(is_there(alive.name()));
  EXPECT_TRUE(is_there(other));
  std::filesystem::remove("/dev/shm" + other);
}

TEST(ShmFaults, LeavesNoFiles) {
  const auto pids = testing::shared_with_forks<std::array<std::atomic<int>, 3>>();
  testing::run_ranks({}, {2}, [&](Communicator& communicator) {
    (*pids)[static_cast<std::size_t>(communicator.rank())] = getpid();
    const auto memory = communicator.allocate(1 << 20);
    communicator.barrier()->wait();
    // Its name is removed while it is in use.
    for (const std::string& name : segments())
      for (const auto& pid : *pids)
        EXPECT_EQ(name.find(fmt::format("-{}-", pid.load())), std::string::npos) << name;
    communicator.barrier()->wait();
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
  });
}

// Not a fault, but the wait loop must not treat it as one.
TEST(ShmGroup, MemoryOfDevicesGoesThroughTheHost) {
  config::set_emulated_gpus(1, 64);
  run_ranks({.device = DeviceType::kGpu}, [](Communicator& communicator) {
    DeviceImpl& device = communicator.device();
    const std::vector<float> values(100'000, static_cast<float>(communicator.rank() + 1));
    const auto memory = communicator.allocate(values.size() * sizeof(float));
    const Buffer buffer = {memory.get(), static_cast<std::int64_t>(values.size()), float32};
    device.copy_from_host(memory.get(), values.data(), buffer.bytes());
    communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
    std::vector<float> result(values.size());
    device.copy_to_host(result.data(), memory.get(), buffer.bytes());
    device.stream().synchronize();
    EXPECT_EQ(result, std::vector<float>(values.size(), 6.0f));
    communicator.barrier()->wait();
  });
}

// A rank may be busy computing after its call: waiting ranks process its part of the data in shared
// memory.
TEST(ShmGroup, WaitingRanksHelpABusyRank) {
  constexpr std::int64_t kCount = 1'000'001;  // several stretches per rank
  const Arrivals through[2];
  run_ranks({}, [&](Communicator& communicator) {
    const auto memory = communicator.allocate(kCount * sizeof(float));
    auto* values = static_cast<float*>(memory.get());
    const Buffer buffer = {values, kCount, float32};
    for (const int root : {-1, 1}) {
      const Arrivals& others = through[root < 0 ? 0 : 1];
      for (std::int64_t i = 0; i < kCount; ++i)
        values[i] = static_cast<float>(i % 100 + communicator.rank());
      communicator.barrier()->wait();
      const auto work = root < 0 ? communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)
                                 : communicator.reduce({&buffer, 1}, ReduceOp::kSum, root);
      if (communicator.rank() == 1) {
        others.wait_for(2);
      } else {
        work->wait();
        others.arrive();
      }
      work->wait();
      const bool here = root < 0 || root == communicator.rank();
      for (std::int64_t i = 0; here && i < kCount; ++i)
        ASSERT_EQ(values[i], static_cast<float>(3 * (i % 100) + 3)) << i;
      communicator.barrier()->wait();
    }
  });
}

// Collectives that complete before an earlier one, and whose works are destroyed, still count.
TEST(ShmGroup, ABurstOvertakesAnOpenCollective) {
  constexpr int kRounds = 3, kBurst = 40;
  const Arrivals begun, called, done;
  run_ranks({.ranks = 2}, [&](Communicator& communicator) {
    const Buffer large = floats(1'000'000);              // more pieces than a rank may be ahead
    std::vector<std::shared_ptr<CollectiveWork>> burst;  // overtakes the collective before it
    // One rank makes all calls, and nothing more until the other has done all that is possible.
    const auto call_and_wait = [&](int caller, int round) {
      const auto earlier = communicator.all_reduce({&large, 1}, ReduceOp::kMean);
      begun.meet(2 * round);
      if (communicator.rank() != caller) called.wait_for(round);
      for (int i = 0; i < kBurst; ++i) burst.push_back(communicator.barrier());
      if (communicator.rank() == caller) {
        called.arrive();
        done.wait_for(round);
      }
      for (const auto& work : burst) work->wait();
      burst.clear();
      if (communicator.rank() != caller) done.arrive();
      earlier->wait();
      communicator.barrier()->wait();
    };
    for (int round = 1; round <= kRounds; ++round) call_and_wait(1, round);
    call_and_wait(0, kRounds + 1);
  });
}

// More ranks than a host has cores by far.
TEST(ShmGroupSlow, FiveHundredRanksOfOneHostReduce) {
  run_ranks({.ranks = 512}, [](Communicator& communicator) { all_reduce(communicator, 10); });
}

TEST(ShmGroup, MemoryIsGivenBack) {
  run_ranks({.ranks = 1}, [](Communicator& communicator) {
    auto first = communicator.allocate(1 << 20), second = communicator.allocate(1 << 20),
         third = communicator.allocate(100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(third.get()) % 256, 0u);
    EXPECT_EQ(communicator.allocate(0), nullptr);
    void* const begin = first.get();
    static_cast<float*>(begin)[0] = 3.0f;
    first.reset();
    second.reset();
    const auto both = communicator.allocate(2 << 20);  // the two blocks were merged
    EXPECT_EQ(both.get(), begin);
    EXPECT_EQ(static_cast<float*>(begin)[0], 0.0f);  // the system had the memory in between
  });
}

}  // namespace
}  // namespace tandem::shm_faults_test
