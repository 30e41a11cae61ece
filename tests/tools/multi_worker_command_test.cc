// `tandem train` as the ranks of a job.
#include <gtest/gtest.h>

#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "comm/rendezvous/socket.h"
#include "support/files.h"
#include "support/waiting.h"
#include "tools/command.h"

namespace tandem::multi_worker_command_test {
namespace {

using testing::read_file;
using testing::Result;
using testing::run;
using testing::TemporaryDirectory;

std::vector<std::string> training(const std::string& strategy, const std::string& report,
                                  const std::string& epochs = "2") {
  return {"train", "--model",  "mlp",  "--data",     "synthetic", "--limit",  "210", "--batch",
          "64",    "--epochs", epochs, "--strategy", strategy,    "--report", report};
}

TEST(MultiWorkerTraining, EqualsOneProcess) {
  const TemporaryDirectory files;
  const std::string alone = (files / "alone.json").string();
  ASSERT_EQ(run(training("default", alone)).status, 0);
  const auto expected = nlohmann::json::parse(read_file(alone));
  for (const char* ranks : {"2", "3"}) {
    const std::string together = (files / (std::string("together") + ranks)).string();
    std::vector<std::string> arguments = {"run", "-n", ranks, "--", TANDEM_COMMAND};
    for (const std::string& argument : training("multi_worker", together))
      arguments.push_back(argument);
    const Result result = run(arguments);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("[0] test_loss"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("[1] "), std::string::npos) << result.out;  // the chief alone tells
    const auto report = nlohmann::json::parse(read_file(together));
    for (const char* metrics : {"train_loss", "train_accuracy"})
      for (std::size_t epoch = 0; epoch < 2; ++epoch)
        EXPECT_NEAR(report[metrics][epoch].get<double>(), expected[metrics][epoch].get<double>(),
                    1e-5)
            << metrics << " with " << ranks;
    for (const char* metric : {"test_loss", "test_accuracy"})
      EXPECT_NEAR(report[metric].get<double>(), expected[metric].get<double>(), 1e-5) << metric;
  }
}

// The arguments of `tandem run` with two workers that train, and `more`.
std::vector<std::string> job_of(const TemporaryDirectory& files, const std::string& epochs,
                                const std::vector<std::string>& more) {
  std::string command = "echo pid $$ of $RANK; exec " TANDEM_COMMAND;
  for (const std::string& word : training("multi_worker", (files / "report").string(), epochs))
    command += " " + word;
  for (const std::string& word : more) command += " " + word;
  return {"run", "-n", "2", "--", "sh", "-c", command};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

// The launcher forwards Ctrl-C; ranks may receive it in different steps.
TEST(MultiWorkerTraining, ResumesAfterCtrlC) {
  const TemporaryDirectory files, whole;
  constexpr const char* kEpochs = "30";
  ASSERT_EQ(run(job_of(whole, kEpochs, {})).status, 0);
  const std::string state = (files / "state").string();
  testing::Process job(job_of(files, kEpochs, {"--checkpoint", state, "--checkpoint-steps", "1"}),
                       {});
  ASSERT_TRUE(testing::eventually([&] { return std::filesystem::exists(state); }));
  job.kill(SIGINT);
  const Result ended = job.wait();
  ASSERT_EQ(ended.status, 128 + SIGINT) << ended.err;
  EXPECT_EQ(count(ended.err, "[0] tandem: [train] SIGINT stopped training after step "), 1u)
      << ended.err;
  EXPECT_EQ(count(ended.err, "Error"), 0u) << ended.err;
  const Result resumed = run(job_of(files, kEpochs, {"--checkpoint", state, "--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const auto report = nlohmann::json::parse(read_file(files / "report"));
  const auto expected = nlohmann::json::parse(read_file(whole / "report"));
  for (const char* metrics : {"train_loss", "train_accuracy", "test_loss", "test_accuracy"})
    EXPECT_EQ(report[metrics], expected[metrics]) << metrics;
}

TEST(MultiWorkerTraining, ASignalToOneRankStopsAllAfterTheSameStep) {
  const TemporaryDirectory files;
  const std::string state = (files / "state").string();
  testing::Process job(job_of(files, "1000000", {"--checkpoint", state, "--checkpoint-steps", "1"}),
                       {});
  ASSERT_TRUE(testing::eventually([&] { return std::filesystem::exists(state); }));
  const std::string out = job.out();
  const std::regex words("pid ([0-9]+) of 1");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(out, found, words)) << out;
  kill(std::stoi(found[1]), SIGTERM);
  const Result ended = job.wait();
  EXPECT_EQ(ended.status, 128 + SIGTERM) << ended.err;
  EXPECT_EQ(count(ended.err, "[0] tandem: [train] SIGTERM stopped training after step "), 1u)
      << ended.err;
  EXPECT_EQ(files.count_files(), 4u) << "the index, a file of each rank, and the report";
}

// After a rank is killed during training, no process of the job is left.
TEST(MultiWorkerTraining, AKilledRankLeavesNoProcesses) {
  const TemporaryDirectory temporary, reports;
  std::string command = "echo pid $$ of $RANK at $MASTER_PORT; exec " TANDEM_COMMAND;
  for (const std::string& word : training("multi_worker", (reports / "report").string(), "1000000"))
    command += " " + word;
  testing::Process job({"run", "-n", "3", "--", "sh", "-c", command},
                       {.environment = {{"TMPDIR", temporary.path().string()}}});
  ASSERT_TRUE(testing::eventually([&] { return job.err().find("Epoch 3/") != std::string::npos; }));
  const std::string out = job.out();
  const std::regex words("pid ([0-9]+) of ([0-9]) at ([0-9]+)");
  std::vector<int> processes(3);
  int port = 0;
  for (std::sregex_iterator found(out.begin(), out.end(), words), end; found != end; ++found) {
    processes.at(std::stoul((*found)[2])) = std::stoi((*found)[1]);
    port = std::stoi((*found)[3]);
  }
  ASSERT_GT(processes[1], 0);
  kill(processes[1], SIGKILL);
  const Result result = job.wait();
  EXPECT_EQ(result.status, 128 + SIGKILL) << result.err;
  EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;

  for (int process : processes) {
    EXPECT_NE(kill(process, 0), 0) << process;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      EXPECT_EQ(entry.path().string().find("-" + std::to_string(process) + "-"), std::string::npos)
          << entry.path();
  }
  EXPECT_EQ(temporary.count_files(), 0u);
  EXPECT_NO_THROW(listen_on({"127.0.0.1", static_cast<std::uint16_t>(port)}));
}

}  // namespace
}  // namespace tandem::multi_worker_command_test
