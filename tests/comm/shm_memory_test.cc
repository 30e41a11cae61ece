// The memory of shm groups, and their behaviour if too little is free.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "comm/fault_job.h"
#include "comm/shm/group.h"
#include "comm/shm/layout.h"
#include "comm/shm/segment.h"
#include "core/status.h"
#include "support/errors.h"
#include "support/mount_namespace.h"

namespace tandem::shm_memory_test {
namespace {

using testing::Arrivals;
using testing::error_of;
using testing::expect_parts;

using Job = testing::FaultJob;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Limits the additional address space of this process.
void limit_address_space(std::size_t more) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more;
  const rlimit both = {limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &both), 0);
}

// Mounts a private /dev/shm for this process and its children; false if the system does not permit
// it.
bool enter_small_shared_memory(std::size_t bytes) {
  return testing::enter_mount_namespace() &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, fmt::format("size={}", bytes).c_str()) == 0;
}

bool shared_memory_is_empty() { return std::filesystem::is_empty("/dev/shm"); }

TEST(ShmMemory, AGroupMapsWhatItUses) {
  const Job job{.ranks = 8};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    const ThreadBudget one(1);
    limit_address_space(512 * kMiB);
    const auto communicator = job.join(rank);
    const std::int64_t count = 1'000'000;
    const auto memory = communicator->allocate(static_cast<std::size_t>(count) * sizeof(float));
    auto* const values = static_cast<float*>(memory.get());
    std::fill_n(values, count, 1.0f);
    const Buffer buffer = {values, count, float32};
    communicator->all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
    EXPECT_EQ(std::count(values, values + count, 8.0f), count);
    communicator->barrier()->wait();
  });
  EXPECT_EQ(codes, ExitCodes(8, 0));
}

TEST(ShmMemory, ManyRanksMapLittle) {
  EXPECT_LT(shm::SegmentLayout(128).common_bytes(), 512 * kMiB);
  EXPECT_GT(shm::SegmentLayout(4096).total(), shm::SegmentLayout(4096).arena(4095))
      << "not beyond 64 bits";
}

// Each rank has a share of a piece, whatever the number of ranks.
TEST(ShmMemory, SharesHoldAHeaderAndData) {
  for (const std::size_t ranks : {1, 7, 1024, 1025, 2048, 2049, 10'000}) {
    const shm::SegmentLayout layout(ranks);
    EXPECT_GE(layout.share_bytes(), sizeof(shm::PieceHeader) + 8) << ranks;
    EXPECT_LE(layout.share_bytes() * ranks, layout.piece_bytes());
    EXPECT_EQ(layout.ring_bytes() % Segment::kHugePage, 0u);
  }
  EXPECT_EQ(shm::SegmentLayout(1024).piece_bytes(), shm::kPieceBytes);
}

TEST(ShmMemory, ARankWithoutMemoryFailsAllRanks) {
  const ExitCodes alone = run_processes(1, [](int) {
    if (!enter_small_shared_memory(7 * kMiB)) return;
    const Job job{.ranks = 4};
    const Arrivals ended;
    const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
      expect_parts(
          error_of<ResourceExhaustedError>([&] { job.join(rank); }),
          {"[shm] /dev/shm is too small for rank ", " of group 'test'", "--shm-size", "gloo"});
      ended.meet(job.ranks);
    });
    EXPECT_EQ(codes, ExitCodes(4, 0));
    EXPECT_TRUE(shared_memory_is_empty());
  });
  EXPECT_EQ(alone, ExitCodes(1, 0));
}

TEST(ShmMemory, RankZeroWithoutMemoryFailsAllRanks) {
  const ExitCodes alone = run_processes(1, [](int) {
    if (!enter_small_shared_memory(4096)) return;
    const Job job{.ranks = 2};
    const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
      expect_parts(error_of<ResourceExhaustedError>([&] { job.join(rank); }),
                   {"[shm] /dev/shm is too small for rank 0"});
    });
    EXPECT_EQ(codes, ExitCodes(2, 0));
    EXPECT_TRUE(shared_memory_is_empty());
  });
  EXPECT_EQ(alone, ExitCodes(1, 0));
}

// Publishes another name for rank 0's segment.
class MisleadingStore final : public Store {
 public:
  MisleadingStore(std::shared_ptr<Store> store, std::string name)
      : store_(std::move(store)), name_(std::move(name)) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::string get(const std::string& key, TimePoint deadline) override {
    const std::string value = store_->get(key, deadline);
    return key == "shm/test" ? name_ : value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return store_->add(key, delta);
  }
  void remove(const std::string& key) override { store_->remove(key); }

 private:
  std::shared_ptr<Store> store_;
  std::string name_;
};

TEST(ShmMemory, ARankThatCannotOpenItFailsAllRanks) {
  const Job job{.ranks = 3};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    Job mine = job;
    if (rank == 1) mine.store = std::make_shared<MisleadingStore>(job.store, "/tandem-1-2-3-4");
    expect_parts(error_of<UnavailableError>([&] { mine.join(rank); }),
                 {"[shm] could not open rank 0's shared memory '/tandem-1-2-3-4'"});
  });
  EXPECT_EQ(codes, ExitCodes(3, 0));
}

TEST(ShmMemory, MemoryThatOthersMayOpenIsNotMapped) {
  const std::string name = fmt::format("/tandem-1-{}-0-0", getpid());
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0666);
  ASSERT_GE(file, 0);
  ASSERT_EQ(fchmod(file, 0666), 0);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  expect_parts(error_of<DataLossError>([&] { Segment::open(name, 4096); }),
               {"expected shared memory '", "user ", "alone may open", "with mode 666"});
  ASSERT_EQ(fchmod(file, 0600), 0);
  EXPECT_EQ(Segment::open(name, 4096).name(), name);
  expect_parts(error_of<DataLossError>([&] { Segment::open(name, 8192); }), {"of 8192 bytes"});
  close(file);
  shm_unlink(name.c_str());
  for (const char* other : {"/somebody-else", "/tandem-1-2-3-4/../x", "tandem-1-2-3-4"})
    expect_parts(error_of<DataLossError>([&] { Segment::open(other, 4096); }), {other});
}

TEST(ShmMemory, NamesCannotBeForeseen) {
  const Segment first = Segment::create(4096), second = Segment::create(4096);
  const auto number = [](const Segment& segment) {
    return segment.name().substr(segment.name().rfind('-') + 1);
  };
  EXPECT_EQ(number(first).size(), 16u);
  EXPECT_NE(number(first), number(second));
}

// A rank publishes an invalid offset for its buffer.
TEST(ShmMemory, InvalidOffsetsAreRefused) {
  const auto store = std::make_shared<ForkedStore>();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    shm::ShmGroup group({.store = store, .name = "test", .rank = rank, .size = 2});
    const auto arena = static_cast<std::int64_t>(shm::SegmentLayout::kArenaBytes);
    const auto chunk = static_cast<std::int64_t>(shm::ArenaChunk::kFirstBytes);
    for (const std::int64_t offset : {std::int64_t{-64}, arena, arena - 64, chunk - 64})
      expect_parts(error_of<DataLossError>([&] { group.buffer_of(1 - rank, offset, 128); }),
                   {"[shm] rank ", " published an invalid buffer: 128 bytes at offset "});
    EXPECT_NE(group.buffer_of(1 - rank, chunk - 128, 128), nullptr);
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

bool has_mapped_a_segment(pid_t process) {
  std::stringstream maps;
  maps << std::ifstream(fmt::format("/proc/{}/maps", process)).rdbuf();
  return maps.str().find("/dev/shm/tandem-") != std::string::npos;
}

// Rank 0 is killed while the others wait for a rank that does not join.
TEST(ShmMemory, LeavesNoFilesIfAJobFailsWhileAGroupConnects) {
  const ExitCodes alone = run_processes(1, [](int) {
    if (!enter_small_shared_memory(64 * kMiB)) return;
    const auto membership = std::make_shared<testing::TestMembership>();
    const Job job{.ranks = 3, .membership = membership};
    const auto rank_0 = testing::shared_with_forks<std::atomic<pid_t>>();
    const ExitCodes codes = run_processes(2, [&](int rank) {
      if (rank == 0) {
        *rank_0 = getpid();
        job.join(rank);
      }
      std::thread([&] {
        if (!testing::eventually([] { return has_mapped_a_segment(getpid()); })) return;
        kill(*rank_0, SIGKILL);
        if (testing::eventually([&] { return kill(*rank_0, 0) != 0; })) membership->report("gone");
      }).detach();
      error_of<UnavailableError>([&] { job.join(rank); });
    });
    EXPECT_EQ(codes, (ExitCodes{128 + SIGKILL, 0}));
    EXPECT_TRUE(shared_memory_is_empty());
  });
  EXPECT_EQ(alone, ExitCodes(1, 0));
}

}  // namespace
}  // namespace tandem::shm_memory_test
