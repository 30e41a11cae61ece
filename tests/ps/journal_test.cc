// A store that continues from its files.
#include "ps/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "ps/in_process.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/small_disk.h"
#include "support/tensors.h"

namespace tandem::ps::journal_test {
namespace {

namespace fs = std::filesystem;
using tandem::testing::expect_error;
using testing::trace;

// The update v += value; v is variable 3 of size 2.
proto::Part assign_add() {
  Variable v(zeros({2}), {.name = "v"});
  const auto traced = trace(
      [&](const auto& inputs) {
        v.assign_add(inputs[0]);
        return std::vector<Tensor>();
      },
      {zeros({2})});
  return split(*traced, testing::variable_3).message.updates(0).part();
}

void add(ParameterStore& store, std::uint64_t closure, double value = 1) {
  const Tensor input = full({2}, value);
  store.apply(0, 0, closure, {&input, 1}, {});
}

class Journaled : public ::testing::Test {
 protected:
  // A store, as a new process would have it.
  struct Process {
    explicit Process(const fs::path& folder, std::uint64_t compact_after = 1 << 20)
        : journal(folder, store, {.compact_after_bytes = compact_after}) {}
    ParameterStore store;
    Journal journal;
  };

  fs::path folder() const { return folder_.path() / "ps-0"; }

 private:
  tandem::testing::TemporaryDirectory folder_;
};

TEST_F(Journaled, ContinuesWithVariablesVersionsAndAppliedClosures) {
  {
    Process first(folder());
    first.store.create(3, "v", constant({1.0f, 2.0f}));
    first.store.create(4, "w", constant({{1, 2, 3}}));
    first.store.add_update(0, 0, assign_add());
    add(first.store, 0);
    add(first.store, 2);
    first.store.assign(4, constant({{4, 5, 6}}));
  }
  for (int restart = 0; restart < 3; ++restart) {  // from the log, then from states
    Process again(folder());
    EXPECT_EQ(again.store.num_variables(), 2u);
    EXPECT_EQ(again.store.read(3).value.to_vector<float>(), (std::vector<float>{3, 4}));
    EXPECT_EQ(again.store.read(3).version, 2u);
    EXPECT_EQ(again.store.read(4).value.to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{4, 5, 6}));
    EXPECT_EQ(again.store.read(4).version, 1u);
    add(again.store, 2);  // it was applied before
    EXPECT_EQ(again.store.read(3).version, 2u);
  }
  Process last(folder());
  add(last.store, 1);
  EXPECT_EQ(last.store.read(3).value.to_vector<float>(), (std::vector<float>{4, 5}));
}

TEST_F(Journaled, TrainingContinuesWithTheSameBits) {
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

TEST_F(Journaled, RemovedVariablesStayRemoved) {
  {
    Process process(folder());
    for (const VariableId id : {3, 4}) process.store.create(id, "v", zeros({2}));
    process.store.add_update(0, 0, assign_add());
    add(process.store, 0);
    process.store.remove_updates(0);
    process.store.remove(3);
    process.store.remove(5);  // there is none
    EXPECT_EQ(process.store.num_variables(), 1u);
  }
  for (int restart = 0; restart < 2; ++restart) {  // from the log, then from a state
    Process again(folder());
    EXPECT_EQ(again.store.num_variables(), 1u);
    EXPECT_THROW(again.store.read(3), NotFoundError);
    EXPECT_EQ(again.store.read(4).version, 0u);
  }
}

TEST_F(Journaled, RemovedUpdatesStayRemoved) {
  {
    Process process(folder());
    process.store.create(3, "v", zeros({2}));
    for (const std::uint64_t function : {0, 7}) process.store.add_update(function, 0, assign_add());
    add(process.store, 0);
    process.store.remove_updates(0);
    process.store.remove_updates(5);  // there is none
    EXPECT_EQ(process.store.num_updates(), 1u);
  }
  Process again(folder());
  EXPECT_EQ(again.store.num_updates(), 1u);
  EXPECT_EQ(again.store.read(3).version, 1u);
  EXPECT_THROW(add(again.store, 1), NotFoundError);
}

TEST_F(Journaled, CompactsWhenTheLogIsLarge) {
  Process process(folder(), 20'000);
  const std::uint64_t first = process.journal.generation();
  process.store.create(3, "v", zeros({2}));
  process.store.add_update(0, 0, assign_add());
  for (std::uint64_t i = 0; i < 3000; ++i) add(process.store, i);
  for (int wait = 0; wait < 1000 && process.journal.generation() == first; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(process.journal.generation(), first);
  EXPECT_EQ(process.store.read(3).value.to_vector<float>()[0], 3000);
}

TEST_F(Journaled, ChangeThatCannotBeJournaledIsNotApplied) {
  tandem::testing::SmallDisk disk(1 << 20);
  TANDEM_REQUIRE(disk.mounted(), "mount");
  Process process(disk.path() / "ps-0");
  process.store.create(3, "v", zeros({2}));
  process.store.add_update(0, 0, assign_add());
  add(process.store, 0);
  EXPECT_THROW(process.store.create(4, "large", zeros({1 << 20})), ResourceExhaustedError);
  EXPECT_EQ(process.store.num_variables(), 1u);
  add(process.store, 1);  // there is room for a small record
  const std::uint64_t generation = process.journal.generation();
  const fs::path log = disk.path() / "ps-0" / fmt::format("log-{}", generation);
  EXPECT_EQ(read_records(log, generation).records.size(), 4u);
}

TEST_F(Journaled, RecordThatWasCutOffIsLeftOut) {
  fs::path log;
  std::uint64_t generation = 0;
  {
    Process process(folder());
    process.store.create(3, "v", zeros({2}));
    process.store.add_update(0, 0, assign_add());
    for (std::uint64_t i = 0; i < 3; ++i) add(process.store, i);
    generation = process.journal.generation();
    log = folder() / fmt::format("log-{}", generation);
  }
  fs::resize_file(log, fs::file_size(log) - 5);
  EXPECT_FALSE(read_records(log, generation).complete);
  Process again(folder());
  EXPECT_EQ(again.store.read(3).version, 2u);
}

// A new log is written over an old one, whose records after it do not count.
TEST_F(Journaled, OldLogIsUsedAgain) {
  std::set<ino_t> files;
  std::uint64_t closure = 0;
  for (int round = 0; round < 6; ++round) {
    Process process(folder());
    if (round == 0) {
      process.store.create(3, "v", zeros({2}));
      process.store.add_update(0, 0, assign_add());
    }
    EXPECT_EQ(process.store.read(3).value.to_vector<float>()[0], closure);
    struct stat status {};
    const fs::path log = folder() / fmt::format("log-{}", process.journal.generation());
    ASSERT_EQ(stat(log.c_str(), &status), 0);
    EXPECT_GT(status.st_size, round < 2 ? 0 : 1000) << "with old records";
    files.insert(status.st_ino);
    for (int i = 0; i < 40 - 6 * round; ++i) add(process.store, closure++);
  }
  EXPECT_EQ(files.size(), 2u);
}

TEST_F(Journaled, OldLogThatWasNotBegunAgainIsEmpty) {
  std::uint64_t generation = 0;
  {
    Process process(folder());
    process.store.create(3, "v", zeros({2}));
    process.journal.compact();
    generation = process.journal.generation();
  }
  // The process died after it had renamed the spare file.
  fs::rename(folder() / "spare", folder() / fmt::format("log-{}", generation + 1));
  Process again(folder());
  EXPECT_EQ(again.store.num_variables(), 1u);
}

TEST_F(Journaled, DamagedStateIsAnError) {
  fs::path state;
  {
    Process process(folder());
    process.store.create(3, "v", zeros({100}));
    process.journal.compact();
    state = folder() / fmt::format("state-{}", process.journal.generation());
  }
  std::fstream file(state, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(200);
  file.put('\x55');
  file.close();
  expect_error<DataLossError>([&] { Process again(folder()); }, "is damaged");
  std::ofstream(state, std::ios::trunc) << "something else altogether";
  expect_error<DataLossError>([&] { Process again(folder()); }, "is not a journal");
}

// The process is killed while two threads apply updates and states are written: what it
// acknowledged through a pipe is there.
TEST_F(Journaled, KilledProcessLosesNothingThatItAcknowledged) {
  const proto::Part part = assign_add();
  std::uint64_t acknowledged = 0;
  for (int kill_number = 0; kill_number < 5; ++kill_number) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Process process(folder(), 4'000);
      process.store.create(3, "v", zeros({2}));
      process.store.add_update(0, 0, part);
      for (std::uint64_t closure = acknowledged;; ++closure) {
        add(process.store, closure);
        if (::write(pipe_ends[1], &closure, sizeof(closure)) != sizeof(closure)) ::_exit(1);
      }
    }
    ::close(pipe_ends[1]);
    for (int i = 0; i < 150; ++i) {
      std::uint64_t closure = 0;
      ASSERT_EQ(::read(pipe_ends[0], &closure, sizeof(closure)),
                static_cast<ssize_t>(sizeof(closure)));
      acknowledged = closure + 1;
    }
    ::kill(child, SIGKILL);
    std::uint64_t closure = 0;
    while (::read(pipe_ends[0], &closure, sizeof(closure)) == sizeof(closure))
      acknowledged = closure + 1;
    ::close(pipe_ends[0]);
    ::waitpid(child, nullptr, 0);
    Process again(folder(), 4'000);
    const ParameterStore::Read read = again.store.read(3);
    EXPECT_GE(read.version, acknowledged);
    EXPECT_LE(read.version, acknowledged + 1);  // one may not have been acknowledged
    EXPECT_EQ(read.value.to_vector<float>()[1], static_cast<float>(read.version));
  }
}

}  // namespace
}  // namespace tandem::ps::journal_test
