// A store that continues from snapshots, whose process is killed at every step.
#include "ps/snapshots.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <numeric>
#include <set>
#include <thread>

#include "ps/in_process.h"
#include "ps/update_calls.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/small_disk.h"
#include "support/tensors.h"
#include "support/waiting.h"

namespace tandem::ps::snapshots_test {
namespace {

enum class Fault { kNone, kKill, kError };

// Failures of this process's file operations: the functions below replace the C library's.
struct Faults {
  std::atomic<Fault> fault{Fault::kNone};
  std::atomic<int> steps_until{0};
  std::atomic<int> steps{0};
  std::function<void()> before_rename, before_write;

  void arm(Fault what, int step) {
    steps = 0;
    steps_until = step;
    fault = what;
  }
  void disarm() { fault = Fault::kNone; }
  // Counts an operation. Whether this one fails; `part` happens before the process is killed.
  bool fails(const std::function<void()>& part = [] {}) {
    if (fault == Fault::kNone || ++steps != steps_until) return false;
    if (fault == Fault::kError) return true;
    part();
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
};
Faults& faults() {
  static Faults instance;
  return instance;
}

}  // namespace
}  // namespace tandem::ps::snapshots_test

extern "C" ssize_t write(int file, const void* bytes, std::size_t count) {
  auto& faults = tandem::ps::snapshots_test::faults();
  if (faults.before_write) faults.before_write();
  if (faults.fails([&] { syscall(SYS_write, file, bytes, count / 2); })) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_write, file, bytes, count);
}
extern "C" int fsync(int file) {
  if (tandem::ps::snapshots_test::faults().fails()) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  auto& faults = tandem::ps::snapshots_test::faults();
  if (faults.before_rename) faults.before_rename();
  if (faults.fails()) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_rename, from, to));
}
extern "C" int remove(const char* path) noexcept {
  if (tandem::ps::snapshots_test::faults().fails()) {
    errno = EIO;
    return -1;
  }
  const int result = static_cast<int>(syscall(SYS_unlink, path));
  return result != 0 && errno == EISDIR ? static_cast<int>(syscall(SYS_rmdir, path)) : result;
}

namespace tandem::ps::snapshots_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using namespace tandem::testing;
using testing::assign_add;
using testing::trace;

ParameterStore::Applied add(ParameterStore& store, std::uint64_t closure, double value = 1) {
  const Tensor input = full({2}, value);
  return store.apply(0, 0, closure, {&input, 1}, {});
}

double value_of(const ParameterStore& store, VariableId id = 3) {
  return store.read(id).value.to_vector<float>()[0];
}

class SnapshotFiles : public ::testing::Test {
 protected:
  // A store, as a new process would have it.
  struct Process {
    explicit Process(const fs::path& folder, const Snapshots::Options& options = {1h})
        : snapshots((fs::create_directories(folder), folder), store, options) {}
    // Its end is that of a process that was killed.
    void kill() { snapshots.end(); }
    // Variable 3 and its update.
    void begin(const proto::Part& part) {
      store.create(3, "v", zeros({2}));
      store.add_update(0, 0, part);
    }
    ParameterStore store;
    Snapshots snapshots;
  };

  fs::path folder() const { return folder_.path() / "ps-0"; }
  fs::path file(int number) const { return folder() / fmt::format("snapshot-{}", number); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder()))
      names.insert(entry.path().filename());
    return names;
  }
  // Two snapshots, with 2 and 5 updates, and 6 updates.
  void write_two() const {
    Process process(folder());
    process.begin(assign_add());
    for (std::uint64_t closure = 0; closure < 6; ++closure) {
      if (closure == 2 || closure == 5) process.snapshots.write();
      add(process.store, closure);
    }
    process.kill();
  }

 private:
  TemporaryDirectory folder_;
};

TEST_F(SnapshotFiles, StoppedInOrderItContinuesWithEverything) {
  {
    Process first(folder());
    first.begin(assign_add());
    first.store.create(4, "w", constant({{1, 2, 3}}));
    add(first.store, 0);
    add(first.store, 2);
    first.store.assign(4, constant({{4, 5, 6}}));
  }
  for (int restart = 0; restart < 3; ++restart) {
    Process again(folder());
    EXPECT_EQ(again.store.num_variables(), 2u);
    EXPECT_EQ(value_of(again.store), 2);
    EXPECT_EQ(again.store.read(3).version, 2u);
    EXPECT_EQ(again.store.updates(), 2u);
    EXPECT_EQ(again.store.read(4).value.to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{4, 5, 6}));
    EXPECT_EQ(again.store.read(4).version, 1u);
    const ParameterStore::Applied applied = add(again.store, 2);
    EXPECT_TRUE(applied.repeated);
    EXPECT_EQ(applied.number, 2u);
  }
  EXPECT_EQ(files(), (std::set<std::string>{"snapshot-1", "variable-3", "variable-4"}));
  Process last(folder());
  EXPECT_EQ(add(last.store, 1).number, 3u);
  EXPECT_EQ(value_of(last.store), 3);
}

TEST_F(SnapshotFiles, TrainingContinuesWithTheSameBits) {
  const auto train = [&](bool restarts) {
    const fs::path files = folder().string() + (restarts ? "-restarts" : "-whole");
    Variable w(constant({1.0f, -2.0f}), {.name = "w"});
    auto adam = optimizers::Adam(0.1);
    const auto traced = trace(
        [&](const auto& inputs) {
          adam.minimize(reduce_sum(square(w * inputs[0])), {w});
          return std::vector<Tensor>();
        },
        {ones({2})});
    auto process = std::make_unique<Process>(files);
    std::map<const void*, VariableId> ids;
    const SplitFunction function = split(*traced, [&](const Resource& variable) {
      const auto [at, added] = ids.try_emplace(variable.identity(), ids.size());
      if (added)
        process->store.create(at->second, variable.name(), const_cast<Resource&>(variable).value());
      return one_shard(at->second, variable.spec().shape);
    });
    process->store.add_update(0, 0, function.message.updates(0).part());
    for (std::uint64_t step = 0; step < 6; ++step) {
      const auto attributes = attributes_of_run(*function.update_attributes[0]);
      traced->graph->end_run();
      const Tensor gradient = full({2}, 0.5 + static_cast<double>(step));
      process->store.apply(0, 0, step, {&gradient, 1}, {&attributes, 1});
      if (restarts) {
        process.reset();
        process = std::make_unique<Process>(files);
      }
    }
    return process->store.read(0).value.to_vector<float>();
  };
  EXPECT_EQ(train(true), train(false));
}

// The coordinator has them sent again.
TEST_F(SnapshotFiles, DoNotHaveUpdatesThatAreKeptForACommit) {
  const UpdateCalls::Updates updates{.closure = 0,
                                     .updates = {{.index = 0, .inputs = {ones({2})}}}};
  const UpdateCalls::Commit commit{.closure = 0, .indices = {0}, .contributions = {{0, 1}}};
  {
    Process first(folder());
    first.begin(assign_add());
    UpdateCalls(first.store).stage(updates, 1);
  }
  Process second(folder());
  second.store.add_update(0, 0, assign_add());
  UpdateCalls calls(second.store);
  EXPECT_EQ(calls.commit(commit).missing, (std::vector<std::uint64_t>{0}));
  calls.stage(updates, 1);
  EXPECT_EQ(calls.commit(commit).numbers, (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(value_of(second.store), 1);
}

// Closure 5 is lost, and sent again. Closure 4 is in the snapshot, and its reply was lost.
TEST_F(SnapshotFiles, AKilledProcessLosesWhatFollowsTheSnapshotAndAppliesTheRestOnce) {
  write_two();
  Process again(folder());
  EXPECT_EQ(again.store.updates(), 5u);
  EXPECT_EQ(value_of(again.store), 5);
  EXPECT_TRUE(add(again.store, 4).repeated);
  const ParameterStore::Applied applied = add(again.store, 5);
  EXPECT_FALSE(applied.repeated);
  EXPECT_EQ(applied.number, 6u);
  EXPECT_EQ(value_of(again.store), 6);
}

// A worker that was stopped meanwhile may send them to the server that continues.
TEST_F(SnapshotFiles, CallsThatWereClosedHaveNoEffectAfterAKill) {
  write_two();
  {
    Process process(folder());
    const std::vector<std::uint64_t> cancelled = {5, 6};
    EXPECT_EQ(UpdateCalls(process.store).close_below(7, cancelled, [] { return false; }),
              (std::vector<std::uint64_t>{0, 0}));
    process.kill();
  }
  for (int restart = 0; restart < 2; ++restart) {
    Process process(folder());
    EXPECT_TRUE(add(process.store, 6).repeated);
    EXPECT_FALSE(add(process.store, 7).repeated);
    EXPECT_EQ(value_of(process.store), 6);
    process.kill();
  }
  write_file(folder() / "closed", "x");
  EXPECT_EQ(Process(folder()).store.updates(), 5u);  // the damage is logged
}

TEST_F(SnapshotFiles, ChangesByTheChiefAreKeptAtOnce) {
  const auto killed = [&](const std::function<void(Process&)>& change) {
    Process process(folder());
    change(process);
    process.kill();
  };
  const proto::Part part = assign_add();
  killed([&](Process& process) {
    process.begin(part);
    process.store.create(4, "w", ones({2}));
    process.store.assign(4, full({2}, 2));
  });
  EXPECT_EQ(files(), (std::set<std::string>{"variable-3", "variable-4"}));
  killed([&](Process& process) {
    EXPECT_EQ(value_of(process.store, 4), 2);
    EXPECT_EQ(process.store.read(4).version, 1u);
    process.store.add_update(0, 0, part);
    add(process.store, 0);
    process.snapshots.write();
    add(process.store, 1);
    process.store.assign(4, full({2}, 3));
    process.store.create(5, "x", ones({2}));
  });
  killed([&](Process& process) {
    EXPECT_EQ(value_of(process.store), 1);
    EXPECT_EQ(value_of(process.store, 4), 3);
    EXPECT_TRUE(process.store.has(5));
    process.store.remove_updates(0);
    for (const VariableId removed : {3, 5, 6}) process.store.remove(removed);
  });
  {
    Process process(folder());
    EXPECT_EQ(process.store.num_variables(), 1u);
    EXPECT_EQ(process.store.num_updates(), 0u);
    EXPECT_EQ(value_of(process.store, 4), 3);
    for (int i = 0; i < 2; ++i) process.snapshots.write();
  }
  EXPECT_EQ(files(), (std::set<std::string>{"snapshot-2", "snapshot-3"}));
}

TEST_F(SnapshotFiles, AreWrittenFromTimeToTimeWhileThereAreChanges) {
  Process process(folder(), {1ms});
  process.begin(assign_add());
  add(process.store, 0);
  const auto newest = [&] {
    for (const std::string& name : files())
      if (name.starts_with("snapshot-")) return read_file(folder() / name).size();
    return std::size_t{0};
  };
  EXPECT_TRUE(eventually([&] { return newest() > 0; }));
  std::uint64_t closure = 1;
  EXPECT_TRUE(eventually([&] {
    add(process.store, closure++);
    return fs::exists(file(3));
  }));
}

TEST_F(SnapshotFiles, AreWrittenAfterSoManyUpdates) {
  Process process(folder(), {.interval = 24h, .updates = 10});
  process.begin(assign_add());
  for (std::uint64_t closure = 0; closure < 10; ++closure) add(process.store, closure);
  EXPECT_TRUE(eventually([&] { return fs::exists(file(1)); }));
}

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

// --- while updates go on ---

TEST_F(SnapshotFiles, AreOfOneMomentAndAreNotKeptWaiting) {
  constexpr std::uint64_t kVariables = 3;
  Process process(folder());
  for (VariableId id = 0; id < kVariables; ++id) {
    process.store.create(id, "v", zeros({2}));
    process.store.add_update(id, 0, assign_add(2, id));
  }
  std::atomic<bool> stop = false;
  std::vector<std::thread> workers;
  for (std::uint64_t worker = 0; worker < 4; ++worker)
    workers.emplace_back([&, worker] {
      const Tensor one = ones({2});
      for (std::uint64_t i = 0; !stop; ++i)
        process.store.apply(i % kVariables, 0, i * 4 + worker, {&one, 1}, {});
    });
  std::uint64_t before = 0;
  for (int i = 1; i <= 6; ++i) {
    process.snapshots.write();
    const fs::path copy = folder().string() + fmt::format("-{}", i);
    fs::create_directories(copy);
    fs::copy(file(i), copy / "snapshot-1");
    Process of_copy(copy);
    std::uint64_t versions = 0;
    for (VariableId id = 0; id < kVariables; ++id) {
      const auto read = of_copy.store.read(id);
      EXPECT_EQ(read.value.to_vector<float>(),
                std::vector<float>(2, static_cast<float>(read.version)));
      versions += read.version;
    }
    EXPECT_EQ(of_copy.store.updates(), versions);
    EXPECT_GE(versions, before);
    before = versions;
    of_copy.kill();
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
  EXPECT_GT(before, 0u);
}

TEST_F(SnapshotFiles, UpdatesDoNotWaitForTheDisk) {
  Process process(folder());
  process.begin(assign_add());
  add(process.store, 0);
  std::atomic<bool> writing = false, go_on = false;
  std::thread::id writer;
  faults().before_write = [&] {
    if (std::this_thread::get_id() != writer) return;
    writing = true;
    eventually([&] { return go_on.load(); });
  };
  std::thread snapshot([&] {
    writer = std::this_thread::get_id();
    process.snapshots.write();
  });
  ASSERT_TRUE(eventually([&] { return writing.load(); }));
  for (std::uint64_t closure = 1; closure < 5; ++closure) add(process.store, closure);
  EXPECT_EQ(value_of(process.store), 5);
  go_on = true;
  snapshot.join();
  faults().before_write = nullptr;
  process.kill();
  TemporaryDirectory other;
  fs::copy(file(1), other / "snapshot-1");
  Process again(other.path());
  EXPECT_EQ(value_of(again.store), 1);
}

TEST_F(SnapshotFiles, TakeAtMostThreeTimesTheState) {
  constexpr std::int64_t kElements = 512 << 10;
  constexpr std::uint64_t kVariables = 3, kState = kVariables * kElements * sizeof(float);
  Process process(folder());
  std::uint64_t largest = 0;
  faults().before_rename = [&] {
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder())) bytes += entry.file_size();
    largest = std::max(largest, bytes);
  };
  for (VariableId id = 0; id < kVariables; ++id) process.store.create(id, "v", zeros({kElements}));
  for (int round = 0; round < 6; ++round) {
    for (int repeated = 0; repeated < 2; ++repeated)
      for (VariableId id = 0; id < kVariables; ++id)
        process.store.assign(id, full({kElements}, round));
    process.snapshots.write();
  }
  faults().before_rename = nullptr;
  EXPECT_GT(largest, 2 * kState);
  EXPECT_LE(largest, 3 * kState + (1 << 20));
  process.kill();
}

// --- failures ---

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
      faults().arm(Fault::kKill, step);
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
    faults().arm(Fault::kError, step);
    const std::string error = any_error_of([&] { process.snapshots.write(); });
    const bool reached = faults().steps >= step;
    faults().disarm();
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
}  // namespace tandem::ps::snapshots_test
