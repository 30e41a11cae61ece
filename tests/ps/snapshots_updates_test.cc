// Snapshots that are written while updates go on.
#include "ps/snapshots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "ps/file_faults.h"
#include "ps/snapshot_files.h"
#include "support/waiting.h"

namespace tandem::ps::snapshots_updates_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using namespace tandem::testing;
using namespace ps::testing;

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
  file_faults().before_write = [&] {
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
  file_faults().before_write = nullptr;
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
  file_faults().before_rename = [&] {
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
  file_faults().before_rename = nullptr;
  EXPECT_GT(largest, 2 * kState);
  EXPECT_LE(largest, 3 * kState + (1 << 20));
  process.kill();
}

}  // namespace
}  // namespace tandem::ps::snapshots_updates_test
