// A store that continues from snapshots: what they hold, and when they are written.
#include "ps/snapshots.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "ps/snapshot_files.h"
#include "ps/update_calls.h"
#include "support/files.h"
#include "support/waiting.h"

namespace tandem::ps::snapshots_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using namespace tandem::testing;
using namespace ps::testing;

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

}  // namespace
}  // namespace tandem::ps::snapshots_test
