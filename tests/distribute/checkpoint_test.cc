// Checkpoints that move between strategies: what several workers save in parallel loads in one
// process, and the reverse.
#include "tandem/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <functional>
#include <map>
#include <set>

#include "distribute/checkpoint_training.h"
#include "support/files.h"

namespace tandem::checkpoint_test {
namespace {

using callbacks::TrainingCheckpoint;
using distribute::CentralStorageStrategy;
using distribute::DefaultStrategy;
using distribute::MirroredStrategy;
using distribute::MultiWorkerMirroredStrategy;
using namespace testing;

std::string train_by(const std::string& how, const TrainingRun& run) {
  if (how == "workers") {
    const auto results = run_workers(2, [&](int) {
      return train_and_save(
          MultiWorkerMirroredStrategy({.timeout = testing::kFarAway, .devices = {"/cpu:0"}}), run);
    });
    EXPECT_EQ(results[0], results[1]);
    return results[0];
  }
  ChildProcess process([&] {
    if (how == "default") return train_and_save(DefaultStrategy(), run);
    config::set_logical_cpus(2);
    const std::vector<std::string> cpus = {"/cpu:0", "/cpu:1"};
    if (how == "central")
      return train_and_save(CentralStorageStrategy({.compute_devices = cpus}), run);
    return train_and_save(MirroredStrategy({.devices = cpus}), run);
  });
  return process.result();
}

TEST(CheckpointUnderStrategies, WorkersWriteAFileEach) {
  const TemporaryDirectory directory;
  const TrainingRun run{.path = directory / "run", .moments = true};
  train_by("workers", run);
  EXPECT_EQ(directory.count_files(), 3u);
  elsewhere([&] {
    const CheckpointReader checkpoint(run.path);
    checkpoint.verify();
    ASSERT_EQ(checkpoint.files().size(), 2u);
    for (const CheckpointFile& file : checkpoint.files())
      EXPECT_FALSE(load_safetensors(file.path).tensors.empty()) << file.path;
    // The replicas' own copies are those of the workers.
    std::set<std::size_t> writers;
    for (int replica : {0, 1})
      for (const auto& [name, tensor] : checkpoint.tensors())
        if (name.starts_with("replicas/" + std::to_string(replica))) {
          EXPECT_EQ(tensor.slices.at(0).file, static_cast<std::size_t>(replica)) << name;
          writers.insert(tensor.slices.at(0).file);
        }
    EXPECT_EQ(writers.size(), 2u);
  });
}

TEST(CheckpointUnderStrategies, WeightsOfATrainingStateLoad) {
  const TemporaryDirectory directory;
  const TrainingRun run{.path = directory / "run"};
  const std::vector<double> trained = numbers_of(train_by("workers", run));
  ChildProcess reader([&] {
    Sequential model = make_model(DefaultStrategy());
    model.load_weights(run.path);
    std::vector<double> weights;
    for (const Variable& variable : model.variables())
      for (double value : values_of(variable.value())) weights.push_back(value);
    return text_of(weights);
  });
  const std::vector<double> weights = numbers_of(reader.result());
  ASSERT_GT(weights.size(), 100u);
  EXPECT_EQ(weights,
            std::vector<double>(trained.begin(),
                                trained.begin() + static_cast<std::ptrdiff_t>(weights.size())));
}

TEST(CheckpointUnderStrategies, BackgroundSavesAreTheSame) {
  for (const char* way : {"default", "mirrored", "workers"}) {
    const TemporaryDirectory directory;
    const std::string expected = train_by(way, {.path = directory / "a", .moments = true});
    const TrainingRun run{.path = directory / "b", .background = true, .moments = true};
    EXPECT_EQ(train_by(way, run), expected);
    elsewhere([&] {
      const TensorFile a = CheckpointReader(directory / "a").read_all(),
                       b = CheckpointReader(directory / "b").read_all();
      EXPECT_EQ(a.metadata, b.metadata) << way;
      ASSERT_EQ(a.tensors.size(), b.tensors.size()) << way;
      for (const auto& [name, tensor] : a.tensors)
        EXPECT_EQ(values_of(b.tensors.at(name)), values_of(tensor)) << way << ' ' << name;
    });
  }
}

// With its loss scale, which no replica has used when it is restored.
TEST(CheckpointUnderStrategies, TrainingInFloat16Resumes) {
  for (const char* way : {"default", "mirrored", "central", "workers"}) {
    SCOPED_TRACE(way);
    const TemporaryDirectory directory;
    TrainingRun run{.path = directory / "whole", .epochs = 4, .dtype = "mixed_float16"};
    const std::vector<double> expected = numbers_of(train_by(way, run));
    ASSERT_GT(expected.size(), 100u);
    run.path = directory / "parts";
    run.epochs = 2;
    train_by(way, run);
    run.epochs = 4;
    run.resume = true;
    EXPECT_EQ(numbers_of(train_by(way, run)), expected);
  }
}

TEST(CheckpointUnderStrategies, AWorkerThatCannotWriteStopsAll) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "run");
  const auto results = run_workers(2, [&](int worker) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    Sequential model = make_model(strategy);
    Checkpoint checkpoint({{"model", model.variables()}});
    checkpoint.save(directory / "run" / "c", {{"step", "1"}});
    if (worker == 1) {
      const rlimit none{0, RLIM_INFINITY};
      std::signal(SIGXFSZ, SIG_IGN);
      setrlimit(RLIMIT_FSIZE, &none);
    }
    try {
      checkpoint.save(directory / "run" / "c", {{"step", "2"}});
    } catch (const Error& error) {
      return std::string(error.kind()) + ": " + error.what();
    }
    return std::string("saved");
  });
  EXPECT_NE(results[0].find("AbortedError: [checkpoint] worker 1 failed: [save] cannot write"),
            std::string::npos)
      << results[0];
  EXPECT_NE(results[1].find("ResourceExhaustedError: [save] cannot write"), std::string::npos)
      << results[1];
  elsewhere([&] {
    const CheckpointReader checkpoint(directory / "run" / "c");
    EXPECT_EQ(checkpoint.metadata().at("step"), "1");
    checkpoint.verify();
  });
}

// Workers that save in every step are killed together or one alone, at any moment.
TEST(CheckpointUnderStrategies, AKillLeavesTheLastOneWhole) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "run";
  for (int kill = 0; kill < 6; ++kill) {
    const auto ports = testing::free_ports(2);
    const auto body = [&](int) {
      const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
      Sequential model = make_model(strategy, {.moments = true});
      model.fit(batches(),
                {.epochs = 1'000'000,
                 .verbose = 0,
                 .callbacks = {TrainingCheckpoint(
                     path, {.save_freq = 1, .resume = kill > 0, .background = kill % 2 == 1})}});
      return std::string();
    };
    {
      ChildProcess first = testing::start_worker(ports, 0, body);
      ChildProcess second = testing::start_worker(ports, 1, body);
      const std::string before = testing::read_file(path);
      ASSERT_TRUE(testing::eventually([&] {  // a first checkpoint, or a newer one
        return std::filesystem::exists(path) && testing::read_file(path) != before;
      }));
      (kill % 3 == 0 ? first : second).kill(SIGKILL);
      first.kill(SIGKILL);
      second.kill(SIGKILL);
    }
    elsewhere([&] { CheckpointReader(path).verify(); });
    EXPECT_LE(directory.count_files(), 12u);
  }
}

}  // namespace
}  // namespace tandem::checkpoint_test
