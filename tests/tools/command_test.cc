// The `tandem` command as a process: what it prints, what it writes, how it ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/expects.h"
#include "support/files.h"
#include "tandem/checkpoint.h"
#include "tandem/dtype.h"

namespace tandem {
namespace {

using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;
using json = nlohmann::json;

struct Result {
  int status = -1;  // the exit code; -signal when a signal ended it
  std::string out, err;
};

// A process of `tandem` that runs until wait().
class Process {
 public:
  struct Options {
    std::vector<std::pair<std::string, std::string>> environment;
    rlim_t file_size_limit = RLIM_INFINITY;
  };

  explicit Process(const std::vector<std::string>& arguments, const Options& options) {
    std::vector<char*> argv = {const_cast<char*>(TANDEM_COMMAND)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const std::string out = (files_ / "out").string(), err = (files_ / "err").string();
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if (options.file_size_limit != RLIM_INFINITY) {
      const rlimit limit{options.file_size_limit, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(TANDEM_COMMAND, argv.data());
    _exit(127);
  }

  void kill() const { ::kill(pid_, SIGKILL); }
  Result wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(files_ / "out"),
            read_file(files_ / "err")};
  }

 private:
  TemporaryDirectory files_;
  pid_t pid_ = -1;
};

Result run(const std::vector<std::string>& arguments, const Process::Options& options = {}) {
  return Process(arguments, options).wait();
}

// A short training, with more arguments.
std::vector<std::string> training(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"train", "--model",  "mlp", "--limit",
                                        "300",   "--epochs", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Expects exit code 2 and one line on stderr, "tandem: <start>...", that has `part`.
void expect_failure(const Result& result, const std::string& start, const std::string& part) {
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.err.rfind("tandem: " + start + ": ", 0), 0u) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(Command, TellsItsVersionAndHelp) {
  const Result version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("tandem ", 0), 0u) << version.out;
  const Result help = run({"train", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* option :
       {"--model", "--data", "--strategy", "--devices", "--batch", "--epochs", "--optimizer",
        "--lr", "--seed", "--limit", "--checkpoint", "--resume", "--report"})
    EXPECT_NE(help.out.find(option), std::string::npos) << option;
}

TEST(Command, RefusesCommandLinesThatDoNotParse) {
  expect_failure(run({}), "InvalidArgumentError", "subcommand");
  expect_failure(run({"fly"}), "InvalidArgumentError", "[command line]");
  expect_failure(run({"train", "--epochs", "many"}), "InvalidArgumentError", "--epochs");
  expect_failure(run({"train", "--wings"}), "InvalidArgumentError", "--wings");
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

// The figures of a report that do not depend on the clock.
json figures_of(const std::filesystem::path& path) {
  json report = json::parse(read_file(path));
  report.erase("seconds");
  report.erase("samples_per_second");
  return report;
}

TEST(Command, TheSameSeedGivesTheSameFigures) {
  const TemporaryDirectory directory;
  for (const char* name : {"a", "b"})
    ASSERT_EQ(run(training({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1", "--report",
                            (directory / name).string()}))
                  .status,
              0);
  EXPECT_EQ(figures_of(directory / "a"), figures_of(directory / "b"));
  ASSERT_EQ(run(training({"--seed", "2", "--report", (directory / "c").string()})).status, 0);
  EXPECT_NE(figures_of(directory / "a")["train_loss"], figures_of(directory / "c")["train_loss"]);
}

TEST(Command, TrainsUnderEachStrategy) {
  const TemporaryDirectory directory;
  const auto losses = [&](const std::vector<std::string>& more, std::size_t devices) {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--report", (directory / "r").string()});
    const Result result =
        run(training(arguments), {.environment = {{"TANDEM_EMULATED_GPUS", "2"}}});
    EXPECT_EQ(result.status, 0) << result.err;
    const json report = figures_of(directory / "r");
    EXPECT_EQ(report["devices"].size(), devices);
    return report["test_loss"].get<double>();
  };
  const double one = losses({"--strategy", "one_device", "--devices", "/cpu:0"}, 1);
  EXPECT_NEAR(losses({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({"--strategy", "mirrored", "--devices", "/gpu:0,/gpu:1"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({"--strategy", "mirrored"}, 2), one, 1e-3 * one);
  EXPECT_NEAR(losses({}, 1), one, 1e-3 * one);
}

TEST(Command, BadArgumentsAreOneLineAndExitCodeTwo) {
  const auto refuse = [](const std::vector<std::string>& more, const std::string& kind,
                         const std::string& part) {
    expect_failure(run(training(more)), kind, part);
  };
  refuse({"--model", "vgg"}, "InvalidArgumentError",
         "expected --model mlp, lenet or resnet20, got 'vgg'");
  refuse({"--data", "imagenet"}, "InvalidArgumentError", "got 'imagenet'");
  refuse({"--data", "mnist:"}, "InvalidArgumentError", "got 'mnist:'");
  refuse({"--data", "mnist:/no/such/directory"}, "NotFoundError", "/no/such/directory");
  refuse({"--strategy", "magic"}, "InvalidArgumentError",
         "expected --strategy default, one_device or mirrored, got 'magic'");
  refuse({"--optimizer", "magic"}, "InvalidArgumentError", "got 'magic'");
  refuse({"--strategy", "one_device", "--devices", "/gpu:7"}, "InvalidArgumentError", "/gpu:7");
  refuse({"--strategy", "mirrored", "--devices", "/cpu:0,/toaster:1"}, "InvalidArgumentError",
         "/toaster:1");
  refuse({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:0"}, "InvalidArgumentError",
         "No duplicates allowed");
  refuse({"--strategy", "one_device", "--devices", "/cpu:0,/cpu:1"}, "InvalidArgumentError",
         "takes one device, got 2");
  refuse({"--devices", "/cpu:0"}, "InvalidArgumentError", "--devices needs --strategy");
  refuse({"--batch", "0"}, "InvalidArgumentError", "expected --batch of at least 1, got 0");
  refuse({"--limit", "0"}, "InvalidArgumentError", "expected --limit of at least 1, got 0");
  refuse({"--epochs", "-1"}, "InvalidArgumentError", "expected --epochs of at least 0, got -1");
  refuse({"--resume"}, "InvalidArgumentError", "need --checkpoint FILE");
  refuse({"--report", "/no/such/directory/r.json"}, "NotFoundError", "/no/such/directory");
  expect_failure(run(training({}), {.environment = {{"TANDEM_EMULATED_GPUS", "many"}}}),
                 "InvalidArgumentError", "TANDEM_EMULATED_GPUS");
}

TEST(Command, BadDataFilesAreOneLineAndExitCodeTwo) {
  const TemporaryDirectory directory;
  const std::string images = (directory / "train-images-idx3-ubyte").string();
  const auto refuse = [&](const std::string& kind, const std::string& part) {
    expect_failure(run(training({"--data", "mnist:" + directory.path().string()})), kind, part);
  };
  refuse("NotFoundError", "train-images-idx3-ubyte");
  const std::string no_labels("\0\0\x08\x01\0\0\0\0", 8),
      no_images("\0\0\x08\x03\0\0\0\0\0\0\0\x1c\0\0\0\x1c", 16);
  write_file(directory / "train-labels-idx1-ubyte", no_labels);
  write_file(directory / "t10k-images-idx3-ubyte", no_images);
  write_file(directory / "t10k-labels-idx1-ubyte", no_labels);
  write_file(images, "");
  refuse("DataLossError", images);
  write_file(images, std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c"
                                 "abc",
                                 19));
  refuse("DataLossError", images);
  write_file(images, "GIF89a");
  refuse("InvalidArgumentError", images);
  write_file(directory / "data_batch_1.bin", std::string(3072, 'x'));
  write_file(directory / "test_batch.bin", std::string(3073, '\0'));
  expect_failure(run(training({"--data", "cifar10:" + directory.path().string()})), "DataLossError",
                 "data_batch_1.bin");
  write_file(directory / "data_batch_1.bin", "\x0b" + std::string(3072, 'x'));
  expect_failure(run(training({"--data", "cifar10:" + directory.path().string()})),
                 "InvalidArgumentError", "11");
}

TEST(Command, BadCheckpointsAreOneLineAndExitCodeTwo) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "state.safetensors").string();
  const auto resume = [&](std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--checkpoint", path, "--resume"});
    return run(training(more));
  };
  expect_failure(resume(), "NotFoundError", path);
  ASSERT_EQ(run(training({"--checkpoint", path})).status, 0);
  ASSERT_EQ(resume().status, 0);
  expect_failure(resume({"--batch", "64"}), "InvalidArgumentError",
                 "was written with '128' for --batch, expected '64'");
  expect_failure(resume({"--model", "lenet"}), "InvalidArgumentError",
                 "for --model, expected 'lenet'");

  const std::string good = read_file(path);
  std::string flipped = good;
  flipped[flipped.size() - 100] ^= 4;
  write_file(path, flipped);
  expect_failure(resume(), "DataLossError", "checksum");
  write_file(path, good.substr(0, good.size() - 1));
  expect_failure(resume(), "DataLossError", "damaged");

  write_file(path, good);
  TensorFile file = load_safetensors(path);
  const auto altered = [&](const std::function<void(TensorFile&)>& alter) {
    TensorFile copy = file;
    alter(copy);
    save_safetensors(path, copy);
    return resume();
  };
  expect_failure(altered([](TensorFile& f) { f.tensors.erase("model/dense/bias"); }),
                 "NotFoundError", "'dense/bias'");
  expect_failure(
      altered([](TensorFile& f) { f.tensors["model/wing/bias"] = f.tensors["model/dense/bias"]; }),
      "InvalidArgumentError", "'wing/bias'");
  expect_failure(altered([](TensorFile& f) {
                   f.tensors["model/dense/bias"] = f.tensors["model/dense_2/bias"];
                 }),
                 "InvalidArgumentError", "expected float32 (512,)");
}

TEST(Command, AFullDiskLeavesTheOldCheckpoint) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "state.safetensors").string();
  ASSERT_EQ(run(training({"--checkpoint", path})).status, 0);
  const std::string good = read_file(path);
  const Result full =
      run(training({"--seed", "3", "--checkpoint", path}), {.file_size_limit = 1 << 20});
  EXPECT_EQ(full.status, 2);
  EXPECT_NE(full.err.find("tandem: ResourceExhaustedError: [save] cannot write '" + path + "'"),
            std::string::npos)
      << full.err;
  EXPECT_EQ(read_file(path), good);
  EXPECT_EQ(directory.count_files(), 1u);
}

// Runs a training that writes a checkpoint every few steps, kills it once there is one, and goes on
// until it is through.
void killed_and_resumed(const std::vector<std::string>& arguments) {
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
    for (int wait = 0; wait < 6000 && !std::filesystem::exists(state); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    process.kill();
    ASSERT_EQ(process.wait().status, -SIGKILL) << "the training was through before it was killed";
  }
  ASSERT_TRUE(std::filesystem::exists(state));
  std::vector<std::string> resumed = checkpointed;
  resumed.insert(resumed.end(), {"--resume", "--report", (directory / "killed.json").string()});
  const Result result = run(resumed);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(figures_of(directory / "killed.json"), figures_of(directory / "whole.json"));
  EXPECT_EQ(read_file(state), read_file(directory / "whole"))
      << "the same state of training, to the bit";
}

TEST(Command, GoesOnAfterBeingKilled) {
  killed_and_resumed(
      {"train", "--model", "lenet", "--limit", "400", "--epochs", "2", "--batch", "32"});
}

TEST(Command, GoesOnAfterBeingKilledOnTwoReplicas) {
  killed_and_resumed({"train", "--model", "lenet", "--limit", "350", "--epochs", "2", "--batch",
                      "33", "--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"});
}

// Batch normalisation's moments, which replicas keep apart, and augmentation of the data.
TEST(CommandSlow, GoesOnAfterBeingKilledWithMomentsAndAugmentation) {
  const auto folder = testing::data_folder("cifar10");
  TANDEM_REQUIRE(!folder.empty(), "cifar10");
  killed_and_resumed({"train", "--model", "resnet20", "--data", "cifar10:" + folder.string(),
                      "--limit", "400", "--epochs", "2", "--batch", "33", "--strategy", "mirrored",
                      "--devices", "/cpu:0,/cpu:1"});
}

double test_accuracy(std::vector<std::string> arguments, const Process::Options& options = {}) {
  const TemporaryDirectory directory;
  arguments.insert(arguments.begin(), "train");
  arguments.insert(arguments.end(), {"--report", (directory / "r").string()});
  const Result result = run(arguments, options);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.status == 0 ? figures_of(directory / "r")["test_accuracy"].get<double>() : 0.0;
}

TEST(CommandSlow, LenetLearnsMnistOnTwoReplicas) {
  const auto folder = testing::data_folder("mnist");
  TANDEM_REQUIRE(!folder.empty(), "mnist");
  EXPECT_GT(
      test_accuracy({"--model", "lenet", "--data", "mnist:" + folder.string(), "--strategy",
                     "mirrored", "--devices", "/cpu:0,/cpu:1", "--batch", "128", "--epochs", "2"}),
      0.985);
}

TEST(CommandSlow, LenetLearnsMnistOnTwoEmulatedGpus) {
  const auto folder = testing::data_folder("mnist");
  TANDEM_REQUIRE(!folder.empty(), "mnist");
  EXPECT_GT(
      test_accuracy({"--model", "lenet", "--data", "mnist:" + folder.string(), "--strategy",
                     "mirrored", "--devices", "/gpu:0,/gpu:1", "--batch", "128", "--epochs", "2"},
                    {.environment = {{"TANDEM_EMULATED_GPUS", "2"}}}),
      0.985);
}

TEST(CommandSlow, LenetLearnsDrawnDigits) {
  EXPECT_GT(test_accuracy({"--model", "lenet", "--strategy", "mirrored", "--devices",
                           "/cpu:0,/cpu:1", "--batch", "128", "--epochs", "2", "--seed", "1"}),
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
}  // namespace tandem
