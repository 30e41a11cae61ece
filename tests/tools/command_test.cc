// The `tandem` command as a process: its output, files and exit codes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/expects.h"
#include "support/files.h"
#include "support/waiting.h"
#include "tools/command.h"

namespace tandem::command_test {
namespace {

using namespace testing;
using json = nlohmann::json;

TEST(Command, PrintsItsVersionAndHelp) {
  const Result version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("tandem ", 0), 0u) << version.out;
  const Result help = run({"train", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* option : {"--model", "--data", "--strategy", "--devices", "--batch", "--epochs",
                             "--optimizer", "--dtype", "--lr", "--seed", "--limit", "--checkpoint",
                             "--resume", "--report", "--trace", "--profile"})
    EXPECT_NE(help.out.find(option), std::string::npos) << option;
}

TEST(Command, ListsDevices) {
  const Process::Options two_gpus = {.environment = {{"TANDEM_EMULATED_GPUS", "2:64"}}};
  const json devices = json::parse(run({"devices", "--json"}, two_gpus).out);
  ASSERT_EQ(devices["physical_devices"].size(), 3u);
  EXPECT_EQ(devices["physical_devices"][0]["type"], "CPU");
  EXPECT_EQ(devices["physical_devices"][1]["name"], "/physical_device:GPU:0");
  EXPECT_EQ(devices["physical_devices"][1]["emulated"], true);
  EXPECT_EQ(devices["physical_devices"][1]["memory_bytes"], 64 << 20);
  ASSERT_EQ(devices["logical_devices"].size(), 3u);
  EXPECT_EQ(devices["logical_devices"][2]["name"], "/job:localhost/replica:0/task:0/device:GPU:1");
  const Result table = run({"devices"}, two_gpus);
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("/physical_device:GPU:1"), std::string::npos);
  EXPECT_NE(table.out.find("emulated"), std::string::npos);
}

TEST(Command, TrainsAndReports) {
  const TemporaryDirectory directory;
  const std::string report_path = (directory / "report.json").string();
  const Result result = run(training({"--epochs", "2", "--report", report_path}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out.rfind("test_loss: ", 0), 0u) << result.out;
  EXPECT_NE(result.err.find("Epoch 2/2"), std::string::npos) << result.err;
  const json report = json::parse(read_file(report_path));
  EXPECT_EQ(report["train_loss"].size(), 2u);
  EXPECT_EQ(report["train_accuracy"].size(), 2u);
  EXPECT_LT(report["train_loss"][1], report["train_loss"][0]);
  EXPECT_GT(report["test_accuracy"], 0.1);
  EXPECT_GT(report["test_loss"], 0.0);
  EXPECT_GT(report["samples_per_second"], 0.0);
  EXPECT_GT(report["seconds"], 0.0);
  EXPECT_EQ(report["parameters"], 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
  EXPECT_EQ(report["devices"], json({"/job:localhost/replica:0/task:0/device:CPU:0"}));
  EXPECT_EQ("tandem " + report["version"].get<std::string>() + "\n", run({"--version"}).out);
}

TEST(Command, TrainsUnderADtypePolicy) {
  const TemporaryDirectory directory;
  const auto train = [&](const std::string& dtype) {
    const std::string report_path = (directory / dtype).string();
    EXPECT_EQ(run(training({"--dtype", dtype, "--report", report_path})).status, 0);
    return json::parse(read_file(report_path))["test_loss"].get<double>();
  };
  const double exact = train("float32"), mixed = train("mixed_bfloat16");
  EXPECT_NE(mixed, exact);
  EXPECT_NEAR(mixed, exact, 0.02 * exact);
}

// The results of a report that do not depend on the clock.
json results_of(const std::filesystem::path& path) {
  json report = json::parse(read_file(path));
  report.erase("seconds");
  report.erase("samples_per_second");
  return report;
}

TEST(Command, TheSameSeedGivesTheSameResults) {
  const TemporaryDirectory directory;
  for (const char* name : {"a", "b"})
    ASSERT_EQ(run(training({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1", "--report",
                            (directory / name).string()}))
                  .status,
              0);
  EXPECT_EQ(results_of(directory / "a"), results_of(directory / "b"));
  ASSERT_EQ(run(training({"--seed", "2", "--report", (directory / "c").string()})).status, 0);
  EXPECT_NE(results_of(directory / "a")["train_loss"], results_of(directory / "c")["train_loss"]);
}

TEST(Command, TrainsUnderEachStrategy) {
  const TemporaryDirectory directory;
  const auto losses = [&](const std::vector<std::string>& more, std::size_t devices) {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--report", (directory / "r").string()});
    const Result result =
        run(training(arguments), {.environment = {{"TANDEM_EMULATED_GPUS", "2"}}});
    EXPECT_EQ(result.status, 0) << result.err;
    const json report = results_of(directory / "r");
    EXPECT_EQ(report["devices"].size(), devices);
    return report["test_loss"].get<double>();
  };
  const double one = losses({"--strategy", "one_device", "--devices", "/cpu:0"}, 1);
  EXPECT_NEAR(losses({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({"--strategy", "mirrored", "--devices", "/gpu:0,/gpu:1"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({"--strategy", "mirrored"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({"--strategy", "central_storage"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({"--strategy", "central_storage", "--devices", "/cpu:0,/cpu:1"}, 2), one,
              1e-3 * one);
  EXPECT_NEAR(losses({}, 1), one, 1e-3 * one);
}

// Runs a training that saves a checkpoint every few steps, ends it by `signal` once there is
// one, and resumes it to the end.
void ended_and_resumed(const std::vector<std::string>& arguments, int signal = SIGKILL) {
  const TemporaryDirectory directory;
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(run(with({"--checkpoint", (directory / "whole").string(), "--report",
                      (directory / "whole.json").string()}))
                .status,
            0);

  const std::filesystem::path state = directory / "killed";
  const std::vector<std::string> checkpointed =
      with({"--checkpoint", state.string(), "--checkpoint-steps", "1"});
  {
    Process process(checkpointed, {});
    ASSERT_TRUE(testing::eventually([&] { return std::filesystem::exists(state); }));
    process.kill(signal);
    const Result ended = process.wait();
    ASSERT_EQ(ended.status, signal == SIGKILL ? -SIGKILL : 128 + signal)
        << "the training had ended before the signal: " << ended.err;
    if (signal != SIGKILL) {
      EXPECT_NE(ended.err.find("to resume, run the same command with --checkpoint " +
                               state.string() + " --resume\n"),
                std::string::npos)
          << ended.err;
    }
  }
  ASSERT_TRUE(std::filesystem::exists(state));
  std::vector<std::string> resumed = checkpointed;
  resumed.insert(resumed.end(), {"--resume", "--report", (directory / "killed.json").string()});
  const Result result = run(resumed);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(results_of(directory / "killed.json"), results_of(directory / "whole.json"));
  EXPECT_EQ(read_file(state), read_file(directory / "whole"))
      << "the same state of training, to the bit";
}

TEST(Command, ResumesAfterBeingKilled) {
  ended_and_resumed(
      {"train", "--model", "lenet", "--limit", "400", "--epochs", "2", "--batch", "32"});
}

TEST(Command, ResumesAfterBeingKilledOnTwoReplicas) {
  ended_and_resumed({"train", "--model", "lenet", "--limit", "350", "--epochs", "2", "--batch",
                     "33", "--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"});
}

TEST(Command, ResumesAfterCtrlC) {
  ended_and_resumed(
      {"train", "--model", "lenet", "--limit", "400", "--epochs", "2", "--batch", "32"}, SIGINT);
}

TEST(Command, ResumesAfterBeingTerminatedOnTwoReplicas) {
  ended_and_resumed({"train", "--model", "lenet", "--limit", "350", "--epochs", "2", "--batch",
                     "33", "--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"},
                    SIGTERM);
}

// A training without end that has started.
struct Endless {
  explicit Endless(const TemporaryDirectory& directory, std::vector<std::string> more) {
    const std::filesystem::path state = directory / "state";
    more.insert(more.end(),
                {"--epochs", "1000000", "--checkpoint", state.string(), "--checkpoint-steps", "1"});
    process = std::make_unique<Process>(training(more), Process::Options());
    begun = testing::eventually([&] { return std::filesystem::exists(state); });
  }
  std::unique_ptr<Process> process;
  bool begun = false;
};

TEST(Command, WritesReportAndTraceAfterCtrlC) {
  const TemporaryDirectory directory;
  const std::filesystem::path report_path = directory / "report", trace = directory / "trace";
  const Endless run(directory, {"--report", report_path.string(), "--trace", trace.string()});
  ASSERT_TRUE(run.begun);
  run.process->kill(SIGINT);
  EXPECT_EQ(run.process->wait().status, 128 + SIGINT);
  const json report = json::parse(read_file(report_path));
  EXPECT_EQ(report["interrupted"]["signal"], "SIGINT");
  EXPECT_GE(report["interrupted"]["step"], 1);
  EXPECT_GE(report["train_loss"].size(), 1u);
  EXPECT_FALSE(report.contains("test_loss"));
  EXPECT_GT(json::parse(read_file(trace))["traceEvents"].size(), 10u);
}

TEST(Command, ASecondCtrlCEndsItImmediately) {
  const TemporaryDirectory directory;
  const std::filesystem::path report = directory / "report";
  ASSERT_EQ(mkfifo(report.c_str(), 0600),
            0);  // without a reader, so that writing the report blocks
  const Endless run(directory, {"--report", report.string()});
  ASSERT_TRUE(run.begun);
  run.process->kill(SIGINT);
  ASSERT_TRUE(testing::eventually([&] {
    return run.process->err().find("SIGINT stopped training after step ") != std::string::npos;
  }));
  run.process->kill(SIGINT);
  EXPECT_EQ(run.process->wait().status, -SIGINT);
}

TEST(Command, PrintsTheTotalsOfAProfile) {
  const Result result = run(training({"--profile"}));
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part : {"test_loss: ", "host  ", "train step  ", "device:CPU:0  ", "self ms"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << '\n' << result.out;
}

// Has batch normalisation, whose moments differ between replicas, and data augmentation.
TEST(CommandSlow, ResumesAfterBeingKilledWithMomentsAndAugmentation) {
  const auto folder = testing::data_folder("cifar10");
  TANDEM_REQUIRE(!folder.empty(), "cifar10");
  ended_and_resumed({"train", "--model", "resnet20", "--data", "cifar10:" + folder.string(),
                     "--limit", "400", "--epochs", "2", "--batch", "33", "--strategy", "mirrored",
                     "--devices", "/cpu:0,/cpu:1"});
}

double test_accuracy(std::vector<std::string> arguments, const Process::Options& options = {}) {
  const TemporaryDirectory directory;
  arguments.insert(arguments.begin(), "train");
  arguments.insert(arguments.end(), {"--report", (directory / "r").string()});
  const Result result = run(arguments, options);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.status == 0 ? results_of(directory / "r")["test_accuracy"].get<double>() : 0.0;
}

TEST(CommandSlow, LenetLearnsMnistOnTwoReplicas) {
  const auto folder = testing::data_folder("mnist");
  TANDEM_REQUIRE(!folder.empty(), "mnist");
  EXPECT_GT(
      test_accuracy({"--model", "lenet", "--data", "mnist:" + folder.string(), "--strategy",
                     "mirrored", "--devices", "/cpu:0,/cpu:1", "--batch", "128", "--epochs", "2"}),
      0.985);
}

TEST(CommandSlow, LenetLearnsSyntheticDigitsOnTwoEmulatedGpus) {
  EXPECT_GT(test_accuracy({"--model", "lenet", "--strategy", "mirrored", "--devices",
                           "/gpu:0,/gpu:1", "--batch", "128", "--epochs", "2", "--seed", "1"},
                          {.environment = {{"TANDEM_EMULATED_GPUS", "2"}}}),
            0.97);
}

TEST(CommandSlow, Resnet20LearnsCifar10) {
  const auto folder = testing::data_folder("cifar10");
  TANDEM_REQUIRE(!folder.empty(), "cifar10");
  EXPECT_GT(test_accuracy(
                {"--model", "resnet20", "--data", "cifar10:" + folder.string(), "--epochs", "5"}),
            0.50);
}

}  // namespace
}  // namespace tandem::command_test
