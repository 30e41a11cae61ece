// Errors of the `tandem` command for bad arguments, data, checkpoints and disks: one line, exit
// code 2.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/files.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/small_disk.h"
#include "tandem/checkpoint.h"
#include "tools/command.h"

namespace tandem::bad_command_test {
namespace {

using namespace testing;

TEST(BadCommand, RefusesCommandLinesThatDoNotParse) {
  expect_failure(
      run({}), "InvalidArgumentError",
      "[command line] expected a command: devices, train, explain, checkpoint, run, top, compile, "
      "rendezvous\n");
  expect_failure(run({"train", "--epochs", "many"}), "InvalidArgumentError", "--epochs");
}

TEST(BadCommand, SuggestsSimilarNames) {
  const auto refuse = [](const std::vector<std::string>& arguments, const std::string& message) {
    expect_failure(run(arguments), "InvalidArgumentError", "[command line] " + message + "\n");
  };
  const std::string commands =
      "expected a command: devices, train, explain, checkpoint, run, top, compile, rendezvous; "
      "got ";
  refuse({"trian"}, commands + "'trian'; did you mean 'train'?");
  refuse({"frobnicate"}, commands + "'frobnicate'");
  refuse({"train", "--modle", "lenet"},
         "tandem train: unrecognized option '--modle'; did you mean '--model'?");
  refuse({"train", "--epoch=3"},
         "tandem train: unrecognized option '--epoch'; did you mean '--epochs'?");
  refuse({"train", "--frobnicate"}, "tandem train: unrecognized option '--frobnicate'");
  refuse({"train", "lenet", "mlp"}, "tandem train: unrecognized argument 'lenet'");
  refuse(
      {"run", "-n", "2", "python3", "-c", "print()"},
      "tandem run: unrecognized option '-c'; put a program that has options after --: tandem run "
      "... -- python3 ...");
}

TEST(BadCommand, BadArgumentsAreOneLineAndExitCodeTwo) {
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
         "expected --strategy default, one_device, mirrored, central_storage, tpu or multi_worker, "
         "got 'magic'");
  refuse({"--optimizer", "magic"}, "InvalidArgumentError",
         "expected one of: sgd, adam, adamw, rmsprop, adagrad, lamb; got 'magic'");
  refuse({"--dtype", "float8"}, "InvalidArgumentError",
         "expected 'float32', 'float64', 'bfloat16', 'float16', 'mixed_bfloat16' or "
         "'mixed_float16', got 'float8'");
  refuse({"--strategy", "one_device", "--devices", "/gpu:7"}, "InvalidArgumentError", "/gpu:7");
  refuse({"--strategy", "mirrored", "--devices", "/cpu:0,/toaster:1"}, "InvalidArgumentError",
         "/toaster:1");
  refuse({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:0"}, "InvalidArgumentError",
         "No duplicates allowed");
  refuse({"--strategy", "one_device", "--devices", "/cpu:0,/cpu:1"}, "InvalidArgumentError",
         "expected one device for --strategy one_device, got 2");
  refuse({"--devices", "/cpu:0"}, "InvalidArgumentError", "--devices requires --strategy");
  refuse({"--batch", "0"}, "InvalidArgumentError",
         "--batch: expected a whole number of at least 1, got '0'");
  refuse({"--batch", "-3"}, "InvalidArgumentError",
         "--batch: expected a whole number of at least 1, got '-3'");
  refuse({"--lr", "-0.1"}, "InvalidArgumentError", "expected --lr of at least 0, got -0.1");
  refuse({"--lr", "nan"}, "InvalidArgumentError", "expected --lr of at least 0, got nan");
  refuse({"--limit", "0"}, "InvalidArgumentError",
         "--limit: expected a whole number of at least 1, got '0'");
  refuse({"--epochs", "-1"}, "InvalidArgumentError",
         "--epochs: expected a whole number of at least 0, got '-1'");
  refuse({"--seed", "-1"}, "InvalidArgumentError",
         "--seed: expected a whole number of at least 0, got '-1'");
  refuse({"--limit", "99999999999999999999"}, "InvalidArgumentError",
         "--limit: expected a whole number of at least 1, got '99999999999999999999'");
  refuse({"--checkpoint-steps", "1.5"}, "InvalidArgumentError",
         "--checkpoint-steps: expected a whole number of at least 1, got '1.5'");
  refuse({"--resume"}, "InvalidArgumentError", "require --checkpoint FILE");
  refuse({"--report", "/no/such/directory/r.json"}, "NotFoundError", "/no/such/directory");
  refuse({"--report", "/"}, "InvalidArgumentError",
         "expected a file for --report, '/' is a directory");
  refuse({"--checkpoint", "/no/such/directory/c"}, "NotFoundError", "/no/such/directory");
  refuse({"--checkpoint", "/"}, "InvalidArgumentError",
         "expected a file for --checkpoint, '/' is a directory");
  expect_failure(run(training({}), {.environment = {{"TANDEM_EMULATED_GPUS", "many"}}}),
                 "InvalidArgumentError", "TANDEM_EMULATED_GPUS");
}

// A directory with small, valid data in MNIST's or CIFAR-10's format, until a test overwrites a
// file.
class BadData : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kCount = 6;

  BadData() {
    for (const std::string split : {"train", "t10k"}) {
      folder_.write(split + "-images-idx3-ubyte", images_);
      folder_.write(split + "-labels-idx1-ubyte", labels_);
    }
    folder_.write("data_batch_1.bin", records_);
    folder_.write("test_batch.bin", records_);
  }

  Result train(const std::string& format) const {
    return run(training({"--data", format + ":" + folder_.path()}));
  }
  // Writes `bytes` to `file`, expects an error that names it, and restores the file.
  void refuse(const std::string& format, const std::string& file, const Bytes& bytes,
              const std::string& kind, const std::string& part) {
    SCOPED_TRACE(file + ": " + part);
    const std::string good = testing::read_file(folder_ / file);
    folder_.write(file, bytes);
    const Result result = train(format);
    expect_failure(result, kind, part);
    EXPECT_NE(result.err.find(folder_ / file), std::string::npos) << result.err;
    folder_.write(file, Bytes(good.begin(), good.end()));
  }

  static Bytes cut(Bytes bytes, std::size_t count) {
    bytes.resize(bytes.size() - count);
    return bytes;
  }

  TemporaryFolder folder_;
  Bytes images_ = idx_file(0x08, {kCount, 28, 28}, ramp(kCount * 784));
  Bytes labels_ = idx_file(0x08, {kCount}, ramp(kCount, 10));
  Bytes records_ = Bytes(kCount * 3073);
};

TEST_F(BadData, OfTheIdxFormatIsOneLineAndExitCodeTwo) {
  ASSERT_EQ(train("mnist").status, 0);
  const std::string images = "train-images-idx3-ubyte", labels = "t10k-labels-idx1-ubyte";
  for (const std::string& file : {images, labels}) {
    refuse("mnist", file, {}, "DataLossError", "expected an IDX header, the file is empty");
    refuse("mnist", file, {0, 0, 8}, "DataLossError",
           "expected a header of at least 4 bytes, got 3");
    refuse("mnist", file, {'G', 'I', 'F', '8', '9', 'a'}, "InvalidArgumentError",
           "expected the magic number of an IDX file");
    refuse("mnist", file, {0x1f, 0x8b, 8, 0, 0, 0}, "DataLossError", "the gzip data is truncated");
  }
  refuse("mnist", images, cut(images_, 1), "DataLossError",
         "expected elements of shape (6, 28, 28), more than the file can hold");
  refuse("mnist", images, cut(gzip(images_), 20), "DataLossError", "the gzip data is truncated");
  Bytes longer = images_;
  longer.push_back(0);
  refuse("mnist", images, longer, "DataLossError", "expected 4704 bytes of elements");
  refuse("mnist", images, idx_file(0x08, {kCount, 8, 8}, ramp(kCount * 64)), "InvalidArgumentError",
         "expected uint8 images of shape (?, 28, 28), got uint8 (6, 8, 8)");
  refuse("mnist", images, idx_file(0x0d, {kCount, 28, 28}, ramp(kCount * 784 * 4)),
         "InvalidArgumentError", "expected uint8 images of shape (?, 28, 28), got float32");
  refuse("mnist", labels, idx_file(0x08, {kCount - 1}, ramp(kCount - 1)), "InvalidArgumentError",
         "expected uint8 labels of shape (6,)");
  refuse("mnist", labels, idx_file(0x08, {kCount}, {0, 1, 2, 10, 4, 5}), "InvalidArgumentError",
         "expected labels of [0, 10), got 10 at position 3");
  std::filesystem::remove(folder_ / images);
  expect_failure(train("mnist"), "NotFoundError", images);
}

TEST_F(BadData, OfCifar10IsOneLineAndExitCodeTwo) {
  ASSERT_EQ(train("cifar10").status, 0);
  for (const std::string file : {"data_batch_1.bin", "test_batch.bin"}) {
    refuse("cifar10", file, {}, "DataLossError",
           "expected records of 3073 bytes, the file is empty");
    refuse("cifar10", file, cut(records_, 1), "DataLossError",
           "expected a multiple of 3073 bytes (a label and an image each), got 18437");
    Bytes label = records_;
    label[3 * 3073] = 11;
    refuse("cifar10", file, label, "InvalidArgumentError",
           "expected labels of [0, 10), got 11 in record 3");
  }
  std::filesystem::remove(folder_ / "test_batch.bin");
  expect_failure(train("cifar10"), "NotFoundError", "test_batch.bin");
  std::filesystem::remove(folder_ / "data_batch_1.bin");
  expect_failure(train("cifar10"), "NotFoundError", "data_batch_1.bin");
}

TEST(BadCommand, BadCheckpointsAreOneLineAndExitCodeTwo) {
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
  // Header length, header, data.
  for (const std::size_t at : {std::size_t{1}, std::size_t{20}, good.size() - 100}) {
    std::string flipped = good;
    flipped[at] ^= 4;
    write_file(path, flipped);
    expect_failure(resume(), "DataLossError", path);
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, good.size() / 2, good.size() - 1}) {
    write_file(path, good.substr(0, size));
    expect_failure(resume(), "DataLossError", path);
  }
  write_file(path, "no checkpoint, but a text that someone named like one");
  expect_failure(resume(), "DataLossError", path);

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

// Expects that the old checkpoint is unchanged, and that saving the new one failed.
void expect_not_saved(const Result& result, const std::string& path, const std::string& good) {
  EXPECT_EQ(result.status, 2);
  // Skips the lines of the progress bar.
  const std::size_t last = result.err.rfind('\n', result.err.size() - 2) + 1;
  EXPECT_EQ(result.err.find("tandem: ResourceExhaustedError: [save] cannot write '" + path + "': "),
            last)
      << result.err;
  EXPECT_NE(result.err.find("; the file that was there is unchanged\n", last), std::string::npos)
      << result.err;
  EXPECT_EQ(read_file(path), good);
}

TEST(BadCommand, AFullDiskLeavesTheOldCheckpoint) {
  const SmallDisk disk(64 << 20);
  TANDEM_REQUIRE(disk.mounted(), "mount");
  const std::string path = (disk / "state.safetensors").string();
  ASSERT_EQ(run(training({"--checkpoint", path})).status, 0);
  const std::string good = read_file(path);
  disk.fill_up_to(good.size() / 2);
  const Result result = run(training({"--seed", "3", "--checkpoint", path}));
  expect_not_saved(result, path, good);
  EXPECT_NE(result.err.find("No space left on device"), std::string::npos) << result.err;
  EXPECT_EQ(disk.count_files(), 2u) << "the checkpoint and what fills the disk";
  EXPECT_EQ(run(training({"--checkpoint", path, "--resume"})).status, 0);
}

TEST(BadCommand, AFullDiskLeavesTheOldReport) {
  const SmallDisk disk(1 << 20);
  TANDEM_REQUIRE(disk.mounted(), "mount");
  const std::string path = (disk / "report.json").string();
  ASSERT_EQ(run(training({"--report", path})).status, 0);
  const std::string good = read_file(path);
  disk.fill_up_to(0);
  const Result result = run(training({"--report", path}));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(result.err.find("tandem: ResourceExhaustedError: [train] cannot write the report '" +
                            path + "': No space left on device\n"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(read_file(path), good);
  EXPECT_EQ(disk.count_files(), 2u) << "the report and what fills the disk";
}

TEST(BadCommand, AReadOnlyDiskIsAFailedPrecondition) {
  const SmallDisk disk(1 << 20);
  TANDEM_REQUIRE(disk.mounted(), "mount");
  disk.make_read_only();
  const std::string path = (disk / "file").string();
  for (const char* option : {"--report", "--trace", "--checkpoint"}) {
    const Result result = run(training({option, path}));
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_NE(result.err.find("tandem: FailedPreconditionError: ["), std::string::npos)
        << option << ' ' << result.err;
    EXPECT_NE(result.err.find("'" + path + "': Read-only file system\n"), std::string::npos)
        << option << ' ' << result.err;
  }
  expect_failure(run({"run", "--output", disk.path().string(), "--", "true"}),
                 "FailedPreconditionError", "Read-only file system");
}

TEST(BadCommand, ATraceThatCannotBeWrittenSaysWhy) {
  const Result result = run(training({"--trace", "/dev/full"}));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(
      result.err.find("tandem: ResourceExhaustedError: [profiler] cannot write '/dev/full': No "
                      "space left on device\n"),
      std::string::npos)
      << result.err;
}

// For systems on which no disk can be filled, and for the signal that a file size limit raises.
TEST(BadCommand, AFileSizeLimitLeavesTheOldCheckpoint) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "state.safetensors").string();
  ASSERT_EQ(run(training({"--checkpoint", path})).status, 0);
  const std::string good = read_file(path);
  expect_not_saved(
      run(training({"--seed", "3", "--checkpoint", path}), {.file_size_limit = 1 << 20}), path,
      good);
  EXPECT_EQ(directory.count_files(), 1u);
}

}  // namespace
}  // namespace tandem::bad_command_test
