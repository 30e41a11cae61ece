// `tandem checkpoint`, run as users run it.
#include <gtest/gtest.h>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/checkpoint.h"
#include "tandem/tandem.h"
#include "tools/command.h"

namespace tandem::checkpoint_command_test {
namespace {

using namespace testing;

class CheckpointCommand : public ::testing::Test {
 protected:
  CheckpointCommand() {
    file_.tensors["table"] = testing::random_tensor({13, 5}, 1, -1.0, 1.0, float32);
    file_.tensors["steps"] = constant(std::vector<std::int64_t>{7}, {.shape = Shape::scalar()});
    file_.metadata["step"] = "12";
    save_safetensors(path("a.safetensors"), file_);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  Result command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "checkpoint");
    return run(arguments);
  }
  void expect_output(const Result& result, const std::string& out) const {
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, out);
  }

  TemporaryDirectory directory_;
  TensorFile file_;
};

TEST_F(CheckpointCommand, ConvertsShowsAndVerifies) {
  expect_output(command({"convert", path("a.safetensors"), path("b"), "--shards", "5"}), "");
  const CheckpointReader b(path("b"));
  ASSERT_EQ(b.files().size(), 5u);
  std::string expected = "steps int64 ()\n  [] in " + b.files()[0].path.filename().string() +
                         "\ntable float32 (13, 5)\n";
  int begin = 0, at = 0;
  for (int rows : {3, 3, 3, 2, 2}) {
    expected += "  [" + std::to_string(begin) + ":" + std::to_string(begin + rows) + ", 0:5] in " +
                b.files()[static_cast<std::size_t>(at++)].path.filename().string() + "\n";
    begin += rows;
  }
  const Result shown = command({"show", path("b")});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find("in 5 files, with checksums\n  step = 12\n" + expected),
            std::string::npos)
      << shown.out;
  const Result verified = command({"verify", path("b")});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_NE(verified.out.find("all checksums are right"), std::string::npos) << verified.out;

  expect_output(command({"convert", path("b"), path("c")}), "");
  EXPECT_EQ(read_file(path("c")), read_file(path("a.safetensors")));
  expect_output(command({"diff", path("a.safetensors"), path("b")}), "");
}

TEST_F(CheckpointCommand, ListsCheckpointsAndNotTheirParts) {
  convert_checkpoint(path("a.safetensors"), path("b"), {.shards = 3});
  write_file(path("broken.safetensors"), "x");
  write_file(path("notes.txt"), "x");
  const Result result = command({"ls", directory_.path().string()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  EXPECT_EQ(result.out.rfind("a.safetensors: 12, 2 tensors, ", 0), 0u) << result.out;
  EXPECT_NE(result.out.find("\nb: 12, 2 tensors, "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("bytes in 3 files\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nbroken.safetensors: DataLossError: "), std::string::npos);
}

TEST_F(CheckpointCommand, DiffNamesEachDifference) {
  TensorFile other = file_;
  other.tensors["table"] = file_.tensors["table"] + 0.5;
  other.tensors["more"] = ones({1});
  other.tensors["steps"] = ones({});
  save_safetensors(path("b"), other);
  Result result = command({"diff", path("a.safetensors"), path("b")});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("steps: int64 () and float32 ()\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("table: the largest difference is 0.5"), std::string::npos);
  EXPECT_NE(result.out.find("more: only in " + path("b")), std::string::npos) << result.out;
  result = command({"diff", path("b"), path("a.safetensors")});
  EXPECT_NE(result.out.find("more: only in " + path("b")), std::string::npos) << result.out;
}

TEST_F(CheckpointCommand, ConvertsDTypesAndPrefixes) {
  expect_output(command({"convert", path("a.safetensors"), path("b"), "--dtype", "bfloat16",
                         "--prefix", "tab"}),
                "");
  const TensorFile file = load_safetensors(path("b"));
  ASSERT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(file.tensors.at("le").dtype(), bfloat16);
}

TEST_F(CheckpointCommand, ErrorsAreOneLine) {
  expect_failure(command({"show", path("none")}), "NotFoundError", path("none"));
  expect_failure(command({"ls", path("none")}), "NotFoundError", "is not a directory");
  expect_failure(command({"convert", path("a.safetensors"), path("b"), "--dtype", "int7"}),
                 "InvalidArgumentError", "int7");
  expect_failure(command({"convert", path("a.safetensors"), path("b"), "--shards", "0"}),
                 "InvalidArgumentError", "--shards");
  expect_failure(command({"prove", "x"}), "InvalidArgumentError",
                 "expected a command: ls, show, verify, convert, diff");
  expect_failure(command({}), "InvalidArgumentError", "");
  expect_failure(command({"convert", path("a.safetensors"), path("b"), "--shard", "2"}),
                 "InvalidArgumentError", "did you mean '--shards'?");
  convert_checkpoint(path("a.safetensors"), path("b"), {.shards = 2});
  const std::filesystem::path part = CheckpointReader(path("b")).files()[1].path;
  std::string bytes = read_file(part);
  bytes[bytes.size() - 3] ^= 1;
  write_file(part, bytes);
  expect_failure(command({"verify", path("b")}), "DataLossError", part.string());
}

}  // namespace
}  // namespace tandem::checkpoint_command_test
