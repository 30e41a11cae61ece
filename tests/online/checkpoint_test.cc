// Restart in the program's cycle: the same bits, whatever ended the process before.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "core/parallel.h"
#include "online/training.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/process_groups.h"

namespace tandem::online_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using online::Learner;
using online::Window;
using testing::error_of;
using testing::expect_group;
using testing::GroupOfRanks;
using testing::meeting_in;
using testing::samples;
using testing::TemporaryDirectory;
using testing::weights_of;

constexpr int kCycles = 12;

// A model whose random numbers are part of the state.
Model dropout_model() {
  random::set_seed(1);
  Sequential model({layers::Dense(6, {.activation = "tanh", .input_shape = {2}}),
                    layers::Dropout(0.3), layers::Dense(1)});
  model.compile(
      {.optimizer = optimizers::Adam({.learning_rate = 0.01}), .loss = losses::MeanSquaredError()});
  return model;
}

struct Program {
  explicit Program(const std::optional<comm::ProcessGroup>& group = {})
      : rank(group ? group->rank() : 0),
        learner(dropout_model(), {.group = group, .normalize = online::Normalize{}}) {}
  void advance(std::int64_t cycle) const {
    const auto [x, y] = samples(100 * rank + 5 * cycle, 5);
    learner.observe(x, y);
    window.push(x, y);
    learner.train(window, {.max_steps = 3});
  }
  void write(const fs::path& folder, std::int64_t cycle) const {
    online::write_checkpoint(folder, cycle, {learner}, {window});
  }
  std::int64_t read(const fs::path& folder, std::int64_t cycle = -1) const {
    return online::read_checkpoint(folder, cycle, {learner}, {window});
  }
  // Goes on from the newest checkpoint, if there is one.
  std::vector<double> run(
      const fs::path& folder, const std::function<void()>& before_write = [] {}) const {
    std::int64_t cycle = 0;
    try {
      cycle = read(folder) + 1;
    } catch (const NotFoundError&) {
    }
    for (; cycle < kCycles; ++cycle) {
      advance(cycle);
      before_write();
      write(folder, cycle);
    }
    return weights_of(learner.model());
  }

  int rank;
  Learner learner;
  Window window{{.capacity = 40, .batch_size = 8, .replace = online::Replace::kRandom, .seed = 6}};
};

std::vector<double> uninterrupted(const std::optional<comm::ProcessGroup>& group = {}) {
  const ThreadBudget one(1);  // tests fork afterwards
  const Program program(group);
  for (std::int64_t cycle = 0; cycle < kCycles; ++cycle) program.advance(cycle);
  return weights_of(program.learner.model());
}

TEST(OnlineCheckpoint, GoesOnWithTheSameBits) {
  const TemporaryDirectory folder;
  const auto expected = uninterrupted();
  const Program first;
  for (std::int64_t cycle = 0; cycle < 7; ++cycle) {
    first.advance(cycle);
    first.write(folder.path(), cycle);
  }
  EXPECT_EQ(Program().run(folder.path()), expected);
  // The three newest are kept, and each can be read.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 3);
  const Program again;
  EXPECT_EQ(again.read(folder.path(), kCycles - 3), kCycles - 3);
  for (std::int64_t cycle = kCycles - 2; cycle < kCycles; ++cycle) again.advance(cycle);
  EXPECT_EQ(weights_of(again.learner.model()), expected);
  EXPECT_NE(error_of<NotFoundError>([&] { again.read(folder.path(), 2); }).find("there is no"),
            std::string::npos);
}

TEST(OnlineCheckpoint, GoesOnWithTheSameBitsOnTwoRanks) {
  const TemporaryDirectory folder;
  expect_group({}, [&](int) {
    const auto expected = uninterrupted(comm::new_group());
    const Program first(comm::new_group());
    for (std::int64_t cycle = 0; cycle < 5; ++cycle) {
      first.advance(cycle);
      first.write(folder.path(), cycle);
    }
    EXPECT_EQ(Program(comm::new_group()).run(folder.path()), expected);
  });
}

// One of a job's ranks, from its newest checkpoint to the end: 0 if its weights are then those of a
// program that was not interrupted, 3 if another rank is gone.
int run_rank(const GroupOfRanks& job, int rank, const TemporaryDirectory& meeting,
             const fs::path& folder, const std::function<void()>& before_write) {
  const ThreadBudget one(1);
  try {
    std::optional<comm::ProcessGroup> group;
    if (job.size > 1) {
      comm::init_process_group(meeting_in(meeting, job, rank));
      group = comm::new_group();
    }
    const auto weights = Program(group).run(folder, before_write);
    return weights == uninterrupted(group) ? 0 : 1;
  } catch (const Error&) {
    return 3;
  }
}

// Starts a job, and waits for its end. `kill_after`: kills all of its ranks after that many
// checkpoints have begun and `wait` microseconds; 0: not at all. Returns the exit codes, 0 for
// ranks that were killed.
std::vector<int> run_job(int ranks, const fs::path& folder, int kill_after, useconds_t wait) {
  const GroupOfRanks job{.size = ranks};
  const TemporaryDirectory meeting;
  int writes[2] = {-1, -1};
  EXPECT_EQ(pipe(writes), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    close(writes[0]);
    _exit(run_rank(job, rank, meeting, folder, [&] {
      const char begins = 'w';
      if (rank == 0 && write(writes[1], &begins, 1) != 1) _exit(2);
    }));
  }
  close(writes[1]);
  char begun = 0;
  for (int i = 0; i < kill_after; ++i)
    if (read(writes[0], &begun, 1) != 1) break;  // it has ended
  if (kill_after > 0) {
    usleep(wait);
    for (const pid_t child : children) kill(child, SIGKILL);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFSIGNALED(status) && kill_after > 0 ? 0 : WEXITSTATUS(status));
  }
  close(writes[0]);
  return codes;
}

// Killed at 50 moments of writing, and started again each time: as if nothing had happened.
void survives_kills(int ranks) {
  const TemporaryDirectory folder;
  const fs::path mine = folder / "cycles";
  constexpr int kKills = 50;
  for (int number = 0; number < kKills; ++number) {
    if (number % 10 == 0) fs::remove_all(mine);
    for (const int code :
         run_job(ranks, mine, 1 + number % 3, static_cast<useconds_t>(number * 7 % kKills * 50)))
      EXPECT_TRUE(code == 0 || (ranks > 1 && code == 3)) << code << " at " << number;
    if (number % 10 == 9) {
      EXPECT_EQ(run_job(ranks, mine, 0, 0), std::vector<int>(static_cast<std::size_t>(ranks), 0));
    }
  }
}

TEST(OnlineCheckpoint, SurvivesAKillAtAnyPoint) { survives_kills(1); }
TEST(OnlineCheckpoint, SurvivesAKillOfTwoRanksAtAnyPoint) { survives_kills(2); }

void damage(const fs::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-3, std::ios::end);
  bytes.put('\x55');
}

TEST(OnlineCheckpoint, TakesTheOneBeforeADamagedOne) {
  const TemporaryDirectory folder;
  expect_group({}, [&](int rank) {
    const Program program(comm::new_group());
    for (std::int64_t cycle = 0; cycle < 3; ++cycle) {
      program.advance(cycle);
      program.write(folder.path(), cycle);
    }
    // The state of a rank alone.
    if (rank == 1) damage(folder.path() / "cycle-000000000002" / "rank-1.safetensors");
    if (rank == 1) fs::remove(folder.path() / "cycle-000000000001" / "rank-1.safetensors");
    comm::barrier();
    EXPECT_EQ(Program(comm::new_group()).read(folder.path()), 0);
    const auto before = weights_of(program.learner.model());
    EXPECT_NE(error_of<DataLossError>([&] { program.read(folder.path(), 2); }), "no error");
    EXPECT_EQ(weights_of(program.learner.model()), before);
    if (rank == 0) damage(folder.path() / "cycle-000000000000" / "rank-0.safetensors");
    comm::barrier();
    EXPECT_NE(error_of<DataLossError>([&] { program.read(folder.path()); }).find("all checkpoints"),
              std::string::npos);
  });
}

// Four ranks' samples among three, and one.
TEST(OnlineCheckpoint, DealsSamplesToOtherNumbersOfRanks) {
  const TemporaryDirectory folder;
  const auto sum_of = [](const Window& window) {
    double sum = 0.0;
    for (const float y : window.state().at("y").to_vector<float>()) sum += y;
    return sum;
  };
  expect_group({.size = 2}, [&](int) {
    const Program program(comm::new_group());
    for (std::int64_t cycle = 0; cycle < 3; ++cycle) program.advance(cycle);
    program.write(folder.path(), 9);
    const double all = comm::all_reduce(constant(sum_of(program.window))).item();
    std::ofstream(folder.path() / "sum") << all;
  });
  double expected = 0.0;
  std::ifstream(folder.path() / "sum") >> expected;
  const auto expect_all = [&](const std::optional<comm::ProcessGroup>& group) {
    const Program program(group);
    EXPECT_EQ(program.read(folder.path()), 9);
    EXPECT_EQ(program.learner.step(), 9);
    double sum = sum_of(program.window);
    if (group) sum = comm::all_reduce(constant(sum)).item();
    EXPECT_NEAR(sum, expected, 1e-3);
    program.advance(10);
  };
  expect_group({.size = 3}, [&](int) { expect_all(comm::new_group()); });
  expect_all({});
}

TEST(OnlineCheckpoint, RefusesOtherModelsAndChangesNothing) {
  const TemporaryDirectory folder;
  const Program program;
  program.advance(0);
  program.write(folder.path(), 0);
  random::set_seed(1);
  Sequential other({layers::Dense(7, {.input_shape = {2}}), layers::Dense(1)});
  const Learner learner(other);
  const auto before = weights_of(other);
  EXPECT_THROW(online::read_checkpoint(folder.path(), -1, {learner}, {}), Error);
  // The window is the wrong one; the learner would have been right.
  program.advance(1);
  const auto weights = weights_of(program.learner.model());
  EXPECT_THROW(online::read_checkpoint(folder.path(), -1, {program.learner}, {Window()}),
               InvalidArgumentError);
  EXPECT_EQ(weights_of(program.learner.model()), weights);
  EXPECT_EQ(weights_of(other), before);
  EXPECT_THROW(program.write(folder.path(), -1), InvalidArgumentError);
  EXPECT_THROW(online::write_checkpoint(folder.path(), 1, {}, {}), InvalidArgumentError);
  std::ofstream(folder.path() / "file");
  EXPECT_THROW(program.write(folder.path() / "file", 1), ResourceExhaustedError);
}

TEST(OnlineState, GoesOnFromBytes) {
  const Program program, other;
  for (std::int64_t cycle = 0; cycle < 4; ++cycle) program.advance(cycle);
  const std::string bytes = online::state_bytes(&program.learner, &program.window);
  for (std::int64_t cycle = 4; cycle < 8; ++cycle) program.advance(cycle);
  online::restore_bytes(&other.learner, &other.window, bytes);
  for (std::int64_t cycle = 4; cycle < 8; ++cycle) other.advance(cycle);
  EXPECT_EQ(weights_of(program.learner.model()), weights_of(other.learner.model()));
  const auto weights = weights_of(other.learner.model());
  const std::int64_t pushed = other.window.pushed();
  for (std::size_t cut = 0; cut < bytes.size(); cut += 97)
    EXPECT_THROW(online::restore_bytes(&other.learner, &other.window, bytes.substr(0, cut)), Error);
  EXPECT_THROW(online::restore_bytes(&other.learner, &other.window,
                                     online::state_bytes(nullptr, &program.window)),
               Error);
  EXPECT_EQ(weights_of(other.learner.model()), weights);
  EXPECT_EQ(other.window.pushed(), pushed);
}

}  // namespace
}  // namespace tandem::online_checkpoint_test
