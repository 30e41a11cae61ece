// `tandem train --trace` and `tandem explain`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "support/trace.h"
#include "tools/command.h"

namespace tandem::insight_test {
namespace {

using nlohmann::json;
using namespace testing;

const Process::Options kTwoGpus = {.environment = {{"TANDEM_EMULATED_GPUS", "2:256"}}};
const std::string kDevice = "/job:localhost/replica:0/task:0/device:";

TEST(Trace, OfATrainingHasTheReplicas) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "t.json").string();
  const Result result = run(training({"--strategy", "mirrored", "--trace", path}), kTwoGpus);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto events = read_trace(path);
  EXPECT_EQ(select(events, "train step", "host", "steps").size(),
            3u);  // 300 images in batches of 128
  EXPECT_GE(select(events, "wait for data", "host", "data").size(), 3u);
  for (const char* device : {"GPU:0", "GPU:1"}) {
    EXPECT_GE(select(events, "all_reduce", kDevice + device).size(), 3u);
    std::set<std::string> rows;
    for (const auto& event : events)
      if (event.process == kDevice + device) rows.insert(event.category);
    EXPECT_EQ(rows, (std::set<std::string>{"collective", "copy", "kernel"}));
  }
}

TEST(Trace, IsWrittenWhenTrainingFails) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "t.json").string();
  expect_failure(run(training({"--data", "mnist:/no/such/directory", "--trace", path})),
                 "NotFoundError", "/no/such/directory");
  read_trace(path);  // expects a valid file
}

TEST(Trace, ThatCannotBeWrittenIsOneLineAndExitCodeTwo) {
  expect_failure(run(training({"--trace", "/no/such/directory/t"})), "NotFoundError",
                 "the directory '/no/such/directory' of --trace");
  const TemporaryDirectory directory;
  expect_failure(run(training({"--trace", directory.path().string()})), "InvalidArgumentError",
                 "is a directory");
}

TEST(ExplainCommand, ReportsTheModel) {
  const Result result = run(
      {"explain", "--model", "mlp", "--batch", "64", "--strategy", "mirrored", "--json"}, kTwoGpus);
  ASSERT_EQ(result.status, 0) << result.err;
  const json report = json::parse(result.out);
  constexpr std::int64_t kParameters = 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10;
  EXPECT_EQ(report["batch"], 64);
  EXPECT_EQ(report["replicas"], json({kDevice + "GPU:0", kDevice + "GPU:1"}));
  std::int64_t moved = 0;
  for (const json& collective : report["collectives"])
    moved += collective["bytes"].get<std::int64_t>();
  EXPECT_EQ(moved, kParameters * 4);
  for (const json& device : report["devices"]) {
    if (device["device"] == kDevice + "CPU:0") continue;
    EXPECT_EQ(device["weights"], kParameters * 4);
    EXPECT_EQ(device["optimizer"], 2 * kParameters * 4);
    EXPECT_EQ(device["inputs"], 32 * (784 * 4 + 8));
    EXPECT_EQ(device["limit"], 256 << 20);
    EXPECT_EQ(device["fits"], true);
  }
  EXPECT_EQ(report["fallbacks"], json::array());
  EXPECT_GT(report["operations"].size(), 20u);
  EXPECT_EQ(report["variables"][0]["name"], "dense/kernel");
  EXPECT_EQ(report["variables"][0]["devices"], report["replicas"]);
}

TEST(ExplainCommand, PrintsATable) {
  const Result result = run({"explain", "--model", "resnet20", "--data", "cifar10"},
                            {.environment = {{"TANDEM_EMULATED_GPUS", "1:16"}}});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"weights", "activations", "GPU:0", "16.0 MiB", "DOES NOT FIT", "conv2d/kernel", "Conv2D"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << '\n' << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(ExplainCommand, BadArgumentsAreOneLineAndExitCodeTwo) {
  const auto refuse = [](std::vector<std::string> more, const std::string& part) {
    more.insert(more.begin(), "explain");
    expect_failure(run(more), "InvalidArgumentError", part);
  };
  refuse({"--model", "vgg"}, "expected --model mlp, lenet or resnet20, got 'vgg'");
  refuse({"--data", "imagenet"}, "[explain] expected --data synthetic, mnist or cifar10");
  refuse({"--batch", "0"}, "--batch: expected a whole number of at least 1, got '0'");
  refuse({"--strategy", "magic"}, "[explain] expected --strategy");
  refuse({"--devices", "/cpu:0"}, "[explain] --devices requires --strategy");
  refuse({"--optimizer", "magic"}, "got 'magic'");
  refuse({"--dtype", "float8"}, "got 'float8'");
  refuse({"--strategy", "one_device", "--devices", "/gpu:7"}, "/gpu:7");
}

}  // namespace
}  // namespace tandem::insight_test
