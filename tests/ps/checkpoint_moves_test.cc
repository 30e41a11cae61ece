// Checkpoints that one strategy saves and another one loads.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "distribute/checkpoint_training.h"
#include "ps/local_cluster.h"
#include "support/grpc.h"

namespace tandem::ps::checkpoint_moves_test {
namespace {

using namespace tandem::testing;

const std::vector<std::string> kWays = {"default", "mirrored", "workers", "central_storage",
                                        "parameter_servers"};

std::string train_by(const std::string& way, const TrainingRun& run) {
  if (way == "workers") {
    const auto results = run_workers(2, [&](int) {
      return train_and_save(
          distribute::MultiWorkerMirroredStrategy({.timeout = kFarAway, .devices = {"/cpu:0"}}),
          run);
    });
    EXPECT_EQ(results[0], results[1]);
    return results[0];
  }
  ChildProcess process([&] {
    if (way == "default") return train_and_save(distribute::DefaultStrategy(), run);
    if (way == "parameter_servers") {
      const testing::LocalCluster cluster(2, 2);
      return train_and_save(cluster.strategy(), run);
    }
    config::set_logical_cpus(2);
    if (way == "mirrored")
      return train_and_save(distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}}), run);
    return train_and_save(
        distribute::CentralStorageStrategy({.compute_devices = {"/cpu:0", "/cpu:1"}}), run);
  });
  return process.result();
}

bool one_replica(const std::string& way) { return way == "default"; }

void expect_close(const std::string& text, const std::string& expected, const std::string& what) {
  const std::vector<double> a = numbers_of(text), b = numbers_of(expected);
  ASSERT_GT(b.size(), 100u) << expected;
  ASSERT_EQ(a.size(), b.size()) << text.substr(0, 300);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-6 * std::fmax(1.0, std::abs(b[i]))) << what << ", number " << i;
}

class CheckpointMoves : public tandem::testing::GrpcTest {};

// Saved under each, resumed under each: equal weights at once. After more training, synchronous
// strategies have the bits of an uninterrupted run if replica counts agree, else its numbers up to
// rounding; from the checkpoint of parameter servers, which is never the same twice, they have
// those of each other.
TEST_F(CheckpointMoves, EveryPairOfStrategies) {
  const TemporaryDirectory directory;
  std::map<std::string, std::string> whole, saved;
  for (const std::string& way : kWays) {
    whole[way] = train_by(way, {.path = directory / ("whole-" + way), .epochs = 4});
    saved[way] = train_by(way, {.path = directory / way, .epochs = 2});
  }
  for (const std::string& from : kWays) {
    std::map<std::string, std::string> expected = whole;
    for (const std::string& to : kWays) {
      const std::string what = from + " to " + to;
      for (const std::int64_t epochs : {2, 4}) {
        const std::filesystem::path copy = directory / (from + "-" + to + std::to_string(epochs));
        elsewhere([&] {
          convert_checkpoint(directory / from, copy, {.shards = static_cast<int>(epochs) - 1});
        });
        const std::string result = train_by(to, {.path = copy, .epochs = epochs, .resume = true});
        if (epochs == 2) {
          EXPECT_EQ(result, saved[from]) << what << ": nothing is left to do";
        } else if (to == "parameter_servers") {
          EXPECT_LT(numbers_of(result).back(), numbers_of(saved[from]).back()) << what << ": loss";
        } else if (from == "parameter_servers") {
          const bool first = to == kWays.front();
          if (first) expected[from] = result;
          if (!first) expect_close(result, expected[from], what);
        } else if (one_replica(from) == one_replica(to)) {
          EXPECT_EQ(result, whole[to]) << what;
        } else {
          expect_close(result, whole[to], what);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::ps::checkpoint_moves_test
