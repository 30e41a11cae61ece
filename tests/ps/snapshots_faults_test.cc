// Damaged snapshots, a full disk, and processes that are killed at every step of a snapshot.
#include "ps/snapshots.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "ps/file_faults.h"
#include "ps/snapshot_files.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/small_disk.h"
#include "support/waiting.h"

namespace tandem::ps::snapshots_faults_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using namespace tandem::testing;
using namespace ps::testing;

TEST_F(SnapshotFiles, OfADamagedOneTheOneBeforeIsUsed) {
  write_two();
  EXPECT_EQ(files(), (std::set<std::string>{"snapshot-1", "snapshot-2"}));
  const std::string good = read_file(file(2));
  const auto expect_older = [&](const std::string& damaged) {
    write_file(file(2), damaged);
    Process process(folder());
    EXPECT_EQ(process.store.updates(), 2u);
    EXPECT_EQ(value_of(process.store), 2);
    EXPECT_FALSE(fs::exists(file(2)));
    process.kill();
  };
  for (std::size_t at = 0; at < good.size(); at += 5) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    expect_older(flipped);
  }
  for (std::size_t size = 0; size < good.size(); size += 7) expect_older(good.substr(0, size));
  expect_older(good + "x");
  ::testing::internal::CaptureStderr();
  expect_older("something else altogether");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "'" + file(2).string() + "' is damaged: the server continues from what it held"),
            std::string::npos);
}

TEST_F(SnapshotFiles, IfAllAreDamagedTheServerDoesNotStart) {
  write_two();
  for (const int number : {1, 2}) write_file(file(number), "x");
  expect_error<DataLossError>([&] { Process again(folder()); },
                              "no snapshot in '" + folder().string() + "' is whole");
  EXPECT_TRUE(fs::exists(file(2))) << "for its user to look at";
}

TEST_F(SnapshotFiles, OfTheFirstOneTheValuesOfTheChiefAreTheOneBefore) {
  {
    Process process(folder());
    process.begin(assign_add());
    process.store.assign(3, full({2}, 7));
    add(process.store, 0);
    process.snapshots.write();
    process.kill();
  }
  write_file(file(1), "x");
  Process again(folder());
  EXPECT_EQ(value_of(again.store), 7);
  EXPECT_EQ(again.store.updates(), 0u);
}

TEST_F(SnapshotFiles, ADamagedChangeOfTheChiefIsReported) {
  write_two();
  write_file(folder() / "variable-3", "x");
  {
    Process again(folder());
    EXPECT_EQ(value_of(again.store), 5) << "of the snapshot";
    again.store.create(4, "w", zeros({2}));
    again.kill();
  }
  write_file(folder() / "variable-4", "x");
  expect_error<DataLossError>([&] { Process again(folder()); },
                              "'" + (folder() / "variable-4").string() + "' is damaged");
}

TEST_F(SnapshotFiles, OnAFullDiskTrainingGoesOn) {
  tandem::testing::SmallDisk disk(2 << 20);
  TANDEM_REQUIRE(disk.mounted(), "mount");
  const proto::Part part = assign_add();
  const auto snapshot = [&](int number) {
    return disk.path() / "ps-0" / fmt::format("snapshot-{}", number);
  };
  {
    Process process(disk.path() / "ps-0", {1ms});
    process.begin(part);
    add(process.store, 0);
    ASSERT_TRUE(eventually([&] { return fs::exists(snapshot(1)); }));
    disk.fill_up_to(0);
    ::testing::internal::CaptureStderr();
    process.store.create(4, "w", zeros({1 << 10}));
    process.store.assign(4, ones({1 << 10}));
    for (std::uint64_t closure = 1; closure < 5; ++closure) add(process.store, closure);
    expect_error<ResourceExhaustedError>([&] { process.snapshots.write(); }, "No space left");
    EXPECT_EQ(value_of(process.store), 5);
    EXPECT_EQ(value_of(process.store, 4), 1);
    process.kill();
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("this change is lost"),
            std::string::npos);
  Process again(disk.path() / "ps-0", {1ms});  // it starts
  EXPECT_EQ(value_of(again.store), 1);
  EXPECT_FALSE(again.store.has(4));
  add(again.store, 1);
  fs::remove(disk.path() / "ballast");
  EXPECT_TRUE(eventually([&] { return fs::exists(snapshot(2)); }));
  again.kill();
}

// How far a child process has come.
struct Progress {
  std::atomic<bool> created = false;
  std::atomic<std::uint64_t> updates = 0, in_snapshot = 0, in_next_snapshot = 0;
};

class FaultySnapshots : public SnapshotFiles {
 protected:
  const proto::Part part_ = assign_add();

  // Continues in a new process, with 3 updates and 2 snapshots more, which is killed at a step.
  // Returns whether it came to its end.
  bool continue_until(int step, Progress& progress) const {
    const pid_t child = ::fork();
    if (child == 0) {
      file_faults().arm(Fault::kKill, step);
      Process process(folder());
      const auto snapshot = [&] {
        progress.in_next_snapshot = process.store.updates();
        process.snapshots.write();
        progress.in_snapshot = process.store.updates();
      };
      process.begin(part_);
      progress.created = true;
      std::uint64_t closure = process.store.updates();
      progress.updates = closure;
      for (int i = 0; i < 3; ++i) {
        add(process.store, closure++);
        progress.updates = closure;
        if (i < 2) snapshot();
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGKILL) << status;
    return WIFEXITED(status);
  }
  void expect_newest(const Progress& progress, const std::string& where) const {
    Process process(folder());
    if (progress.created) {
      EXPECT_TRUE(process.store.has(3)) << where;
    }
    const std::uint64_t updates = process.store.updates();
    EXPECT_GE(updates, progress.in_snapshot) << where;
    EXPECT_LE(updates, std::max<std::uint64_t>(progress.in_snapshot, progress.in_next_snapshot))
        << where;
    if (process.store.has(3)) {
      EXPECT_EQ(process.store.read(3).version, updates) << where;
      EXPECT_EQ(value_of(process.store), static_cast<double>(updates)) << where;
    }
    process.kill();
  }
};

TEST_F(FaultySnapshots, KilledAtEveryStepItContinuesFromTheNewest) {
  int step = 1;
  for (bool ended = false; !ended; ++step) {
    fs::remove_all(folder());
    const auto progress = shared_with_forks<Progress>();
    ended = continue_until(step, *progress);
    expect_newest(*progress, fmt::format("step {}", step));
  }
  EXPECT_GT(step, 20);
}

// The second process is killed while it starts, and the third at any step.
TEST_F(FaultySnapshots, KilledAgainAndAgainItContinues) {
  for (int first = 1; first < 40; first += 3)
    for (int second = 1; second < 12; ++second) {
      fs::remove_all(folder());
      const auto progress = shared_with_forks<Progress>();
      continue_until(first, *progress);
      for (const int step : {1, second, second + 7}) continue_until(step, *progress);
      expect_newest(*progress, fmt::format("steps {} and {}", first, second));
    }
}

TEST_F(FaultySnapshots, AnErrorAtAnyStepLeavesTheOldOnesAndTheNextIsWhole) {
  for (int step = 1;; ++step) {
    fs::remove_all(folder());
    write_two();
    Process process(folder());
    add(process.store, 5);
    file_faults().arm(Fault::kError, step);
    const std::string error = any_error_of([&] { process.snapshots.write(); });
    const bool reached = file_faults().steps >= step;
    file_faults().disarm();
    const auto updates_in_files = [&] {
      TemporaryDirectory copy;
      fs::copy(folder(), copy.path());
      Process other(copy.path());
      other.kill();
      return other.store.updates();
    };
    EXPECT_EQ(updates_in_files(), error == "no error" ? 6u : 5u) << error << " at step " << step;
    add(process.store, 6);
    process.snapshots.write();
    EXPECT_EQ(updates_in_files(), 7u) << step;
    process.kill();
    if (!reached) break;
  }
}

}  // namespace
}  // namespace tandem::ps::snapshots_faults_test
