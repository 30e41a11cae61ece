// The profile of training on several devices.
#include <gtest/gtest.h>

#include "comm/bucket.h"
#include "support/gpus.h"
#include "support/nccl.h"
#include "support/trace.h"
#include "tandem/tandem.h"

namespace tandem::profile_test {
namespace {

using distribute::MirroredStrategy;
using testing::read_trace;
using testing::select;
using testing::TemporaryDirectory;
using testing::TraceEvent;

constexpr std::int64_t kParameters[] = {6 * 8, 8, 8 * 3, 3};

// Whether an event reduces gradients, single ones or in a bucket.
std::int64_t gradient_bytes(bool packed) {
  std::int64_t bytes = 0;
  for (std::int64_t count : kParameters)
    bytes += packed ? static_cast<std::int64_t>(Bucket::array_bytes(count, float32)) : count * 4;
  return bytes;
}

std::vector<TraceEvent> profile_of_fit(const MirroredStrategy& strategy, bool eagerly) {
  const TemporaryDirectory directory;
  Model model;
  {
    const auto scope = strategy.scope();
    model = Sequential(
        {layers::Dense(8, {.activation = "relu", .input_shape = {6}}), layers::Dense(3)});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .run_eagerly = eagerly});
  }
  const auto data =
      data::Dataset::from_tensor_slices({random::normal({24, 6}), zeros({24}, {.dtype = int64})})
          .batch(8)
          .prefetch(1);
  profiler::start({.file = directory / "t"});
  model.fit(data, {.verbose = 0});
  profiler::stop();
  return read_trace(directory / "t");
}

// `step`: the event name of a replica's step. `packed`: gradients are reduced in buckets.
void expect_replicas(const std::vector<TraceEvent>& events, const std::string& type,
                     const std::string& step, bool packed = false) {
  const std::string device = "/job:localhost/replica:0/task:0/device:" + type + ":";
  EXPECT_EQ(select(events, "train step", "host", "steps").size(), 3u);
  EXPECT_EQ(select(events, "wait for data", "host", "data").size(), 4u);  // the last finds the end
  EXPECT_GE(select(events, "prefetch", "host").size(), 4u);
  for (int replica : {0, 1}) {
    const std::string on = device + std::to_string(replica);
    const std::string suffix = ", replica " + std::to_string(replica);
    std::size_t kernels = 0;
    for (const TraceEvent& event : events)
      if (event.category == "kernel" && event.args.contains("replica") &&
          event.args["replica"] == replica) {
        EXPECT_EQ(event.process, on) << event.name;
        EXPECT_EQ(event.row, "stream" + suffix);
        ++kernels;
      }
    EXPECT_GT(kernels, 3u * 4);
    EXPECT_EQ(select(events, step, "host", "steps" + suffix).size(), 3u);
    const auto reductions = select(events, "all_reduce", on, "collectives" + suffix);
    ASSERT_GE(reductions.size(), 3u);
    std::int64_t bytes = 0;
    for (const TraceEvent& reduction : reductions) {
      EXPECT_EQ(reduction.category, "collective");
      bytes += reduction.args["bytes"].get<std::int64_t>();
    }
    EXPECT_EQ(bytes, 3 * gradient_bytes(packed));
    EXPECT_GE(select(events, "wait for all_reduce", "host", "host" + suffix).size(), 3u);
  }
  // Replicas run concurrently: their steps overlap in time, one pair per training step.
  const auto first = select(events, step, "host", "steps, replica 0");
  const auto second = select(events, step, "host", "steps, replica 1");
  const auto steps = select(events, "train step");
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_LT(first[i].begin, second[i].end);
    EXPECT_LT(second[i].begin, first[i].end);
    EXPECT_GE(first[i].begin, steps[i].begin);
    EXPECT_LE(second[i].end, steps[i].end);
  }
}

TEST(Profile, ShowsReplicasOnCpus) {
  config::set_logical_cpus(2);
  const MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  expect_replicas(profile_of_fit(strategy, true), "CPU", "replica step");
}

TEST(Profile, ShowsReplicasOnGpus) {
  testing::use_gpus(2, 64);
  expect_replicas(profile_of_fit(MirroredStrategy(), true), "GPU", "replica step",
                  testing::nccl_joins_gpus());
}

TEST(Profile, ShowsReplicasOfTracedStepsOnCpus) {
  config::set_logical_cpus(2);
  const MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  expect_replicas(profile_of_fit(strategy, false), "CPU", "program");
}

TEST(Profile, ShowsReplicasOfTracedStepsOnGpus) {
  testing::use_gpus(2, 64);
  expect_replicas(profile_of_fit(MirroredStrategy(), false), "GPU", "program",
                  testing::nccl_joins_gpus());
}

}  // namespace
}  // namespace tandem::profile_test
