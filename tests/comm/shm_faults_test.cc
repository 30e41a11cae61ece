// What goes wrong between processes: ranks that die, are late, part or leave. Always a typed error,
// in bounded time, and nothing stays behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "comm/process/process_communicator.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm_backend.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "support/waiting.h"
#include "tandem/config.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::Arrivals;
using testing::error_of;
using testing::expect_parts;

struct Job {
  std::shared_ptr<Store> store = std::make_shared<ForkedStore>();
  int ranks = 3;
  milliseconds time_limit = testing::kFarAway;
  milliseconds join_limit = testing::kFarAway;
  std::shared_ptr<const Membership> membership;
  DeviceType device = DeviceType::kCpu;

  std::unique_ptr<Communicator> join(int rank) const {
    ShmOptions options{.store = store,
                       .name = "test",
                       .rank = rank,
                       .size = ranks,
                       .time_limit = join_limit,
                       .membership = membership};
    Device& on = *DeviceManager::get().devices(device, "test").front();
    return make_process_communicator(make_shm_backend(std::move(options)), on,
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

TEST(ShmFaults, ARankIsKilledBeforeACollective) {
  run_ranks({}, {1}, [](Communicator& communicator) {
    if (communicator.rank() == 1) kill(getpid(), SIGKILL);
    for (std::int64_t count : {10, 1'000'000})
      expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, count); }),
                   {"rank 1 (pid ", ") died; rank ",
                    " was waiting for it: collective 0 "
                    "(all_reduce (sum) of 10 float32 in 1 part"});
  });
}

TEST(ShmFaults, ARankIsKilledInTheMidstOfACollective) {
  run_ranks({}, {1}, [](Communicator& communicator) {
    all_reduce(communicator, 100);
    const Buffer buffer = floats(10'000'000);  // far more than fits ahead of the peers
    if (communicator.rank() == 1) {
      const auto work = communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      for (int i = 0; i < 5; ++i) communicator.progress();
      kill(getpid(), SIGKILL);
    }
    const std::string text = error_of<AbortedError>([&] {
      communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
    });
    expect_parts(text, {"rank 1 (pid ", ") died", "collective 1 "});
    // The group stays of no use, and says why.
    EXPECT_EQ(error_of<AbortedError>([&] { communicator.barrier(); }), text);
  });
}

TEST(ShmFaults, ARankIsKilledAfterACollective) {
  run_ranks({}, {2}, [](Communicator& communicator) {
    all_reduce(communicator, 300'000);
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
    const Buffer buffer = floats(5);
    expect_parts(
        error_of<AbortedError>([&] {
          communicator.broadcast({&buffer, 1}, 2)->wait();
        }),
        {"rank 2 (pid ", ") died", "collective 1 (broadcast of 5 float32 in 1 part from rank 2)"});
  });
}

TEST(ShmFaults, AMessageFromARankThatIsKilled) {
  run_ranks({.ranks = 2}, {0}, [](Communicator& communicator) {
    if (communicator.rank() == 0) kill(getpid(), SIGKILL);
    const Buffer buffer = floats(5);
    expect_parts(error_of<AbortedError>([&] { communicator.recv(buffer, 0)->wait(); }),
                 {"rank 0 (pid ", ") died", "recv of 5 float32 in 1 part from rank 0"});
  });
}

TEST(ShmFaults, ARankNeverStarts) {
  const Job job{.ranks = 4, .join_limit = milliseconds(3000)};
  const ExitCodes codes = run_processes(3, [&](int process) {
    const int rank = process == 2 ? 3 : process;
    const std::string text = error_of<DeadlineExceededError>([&] { job.join(rank); });
    // The last to look may find that another one has left, but never that nothing was missing.
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

TEST(ShmFaults, ARankThatIsLateIsNamedEverywhere) {
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

TEST(ShmFaults, AMessageThatNobodySends) {
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

TEST(ShmFaults, RanksThatPartInShape) {
  for (std::int64_t base : {10, 200'000})
    expect_parting(
        [base](Communicator& communicator) {
          const Buffer buffer = floats(communicator.rank() == 1 ? base + 1 : base);
          return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
        },
        {"[all_reduce] ranks parted at collective 1: ", "rank 1 called all_reduce (sum) of ",
         "float32 in 1 part, step 7", "every rank must call the same collectives"});
}

TEST(ShmFaults, RanksThatPartInLayout) {
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

TEST(ShmFaults, RanksThatPartInDtype) {
  expect_parting(
      [](Communicator& communicator) {
        Buffer buffer = floats(10);
        if (communicator.rank() == 0) buffer.dtype = int32;
        return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      },
      {"ranks parted at collective 1", "rank 0 called all_reduce (sum) of 10 int32", "10 float32"});
}

TEST(ShmFaults, RanksThatPartInOperation) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        return communicator.all_reduce({&buffer, 1},
                                       communicator.rank() == 2 ? ReduceOp::kMax : ReduceOp::kSum);
      },
      {"ranks parted at collective 1", "rank 2 called all_reduce (max)", "all_reduce (sum)"});
}

TEST(ShmFaults, RanksThatPartInOrder) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        if (communicator.rank() == 0) return communicator.broadcast({&buffer, 1}, 0);
        return communicator.all_reduce({&buffer, 1}, ReduceOp::kSum);
      },
      {"ranks parted at collective 1",
       "rank 0 called broadcast of 10 float32 in 1 part from rank 0", "called all_reduce (sum)"});
}

TEST(ShmFaults, RanksThatPartInRoot) {
  expect_parting(
      [](Communicator& communicator) {
        const Buffer buffer = floats(10);
        return communicator.broadcast({&buffer, 1}, communicator.rank() == 1 ? 1 : 0);
      },
      {"ranks parted at collective 1",
       "rank 1 called broadcast of 10 float32 in 1 part from rank 1", "from rank 0"});
}

TEST(ShmFaults, RanksThatPartInWhatTheySendEachOther) {
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

TEST(ShmFaults, AMessageOfAnotherSize) {
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

TEST(ShmFaults, ARankLeavesEarly) {
  run_ranks({}, [](Communicator& communicator) {
    all_reduce(communicator, 1000);
    if (communicator.rank() == 2) return;
    expect_parts(error_of<AbortedError>([&] { all_reduce(communicator, 300'000); }),
                 {"rank 2 (pid ", ") has left the group", "collective 1 "});
  });
}

TEST(ShmFaults, ALeaverThatIsDoneIsNotMissed) {
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

TEST(ShmFaults, AFailureThatTheMembershipKnowsEndsAWait) {
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

TEST(ShmFaults, WhatACrashedJobLeftIsSwept) {
  const auto name = testing::shared_with_forks<std::array<char, 256>>();
  const ExitCodes crashed = run_processes(1, [&](int) {
    const Segment segment = Segment::create(1 << 20);
    std::snprintf(name->data(), name->size(), "%s", segment.name().c_str());
    EXPECT_TRUE(is_there(name->data()));
    kill(getpid(), SIGKILL);
  });
  EXPECT_EQ(crashed, ExitCodes(1, 128 + SIGKILL));
  // Whoever makes a segment sweeps (another test may have by now), but leaves alone what is alive
  // and what only looks like a segment.
  const Segment alive = Segment::create(4096);
  EXPECT_FALSE(is_there(name->data()));
  const std::string other = fmt::format("/tandem-else-{}", getpid());
  std::ofstream("/dev/shm" + other) << "x";
  run_ranks({.ranks = 2}, [](Communicator& communicator) { all_reduce(communicator, 10); });
  EXPECT_TRUE(is_there(alive.name()));
  EXPECT_TRUE(is_there(other));
  std::filesystem::remove("/dev/shm" + other);
}

TEST(ShmFaults, NothingStaysBehind) {
  const auto pids = testing::shared_with_forks<std::array<std::atomic<int>, 3>>();
  run_ranks({}, {2}, [&](Communicator& communicator) {
    (*pids)[static_cast<std::size_t>(communicator.rank())] = getpid();
    const auto memory = communicator.allocate(1 << 20);
    communicator.barrier()->wait();
    // Its name is gone while it is in use.
    for (const std::string& name : segments())
      for (const auto& pid : *pids)
        EXPECT_EQ(name.find(fmt::format("-{}-", pid.load())), std::string::npos) << name;
    communicator.barrier()->wait();
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
  });
}

TEST(ShmFaults, TwoJobsAtOnce) {
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

// Not a fault, but what the wait loop must not mistake for one.
TEST(ShmGroup, MemoryOfDevicesGoesThroughTheHost) {
  config::set_emulated_gpus(1, 64);
  run_ranks({.device = DeviceType::kGpu}, [](Communicator& communicator) {
    Device& device = communicator.device();
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

// A rank that has called may be off computing: those that wait do its share of what lies in shared
// memory.
TEST(ShmGroup, ThoseThatWaitDoTheShareOfARankThatDoesNot) {
  constexpr std::int64_t kCount = 1'000'001;  // several stretches a rank
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
    const auto both = communicator.allocate(2 << 20);  // the two are one again
    EXPECT_EQ(both.get(), begin);
    EXPECT_EQ(static_cast<float*>(begin)[0], 0.0f);  // the machine had it back in between
  });
}

}  // namespace
}  // namespace tandem
