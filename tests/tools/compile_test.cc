// `tandem compile`: errors, and with libtpu (TPU_LIBRARY_PATH) training steps for three TPUs.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "support/built.h"
#include "support/expects.h"
#include "support/files.h"
#include "tools/command.h"

namespace tandem::compile_test {
namespace {

using testing::expect_failure;
using testing::Process;
using testing::Result;
using testing::run;
using testing::TemporaryDirectory;

Result compile(std::vector<std::string> more, const Process::Options& options = {}) {
  more.insert(more.begin(), {"compile", "--model", "mlp"});
  return run(more, options);
}

TEST(Compile, NamesThePluginThatIsMissing) {
  expect_failure(compile({"--target", "tpu:v5e:2x2"}, {.environment = {{"TPU_LIBRARY_PATH", ""}}}),
                 "NotFoundError", "[compile] compiling for TPUs needs libtpu");
  expect_failure(compile({"--target", "tpu:v5e:2x2", "--plugin", "/nowhere/libtpu.so"}),
                 "NotFoundError", "/nowhere/libtpu.so");
}

TEST(Compile, RefusesOtherTargets) {
  for (const std::string target : {"v5e:2x2", "gpu:h200", "tpu:", ""})
    expect_failure(
        compile({"--target", target}), "InvalidArgumentError",
        "[compile] expected --target tpu:TOPOLOGY, such as tpu:v5e:2x2, got '" + target + "'");
}

// Opening a pipe waits for a writer, and there is none.
TEST(Compile, StopsACompilerThatHangs) {
  TANDEM_REQUIRE(testing::built_module("pjrt"), "pjrt");
  const TemporaryDirectory folder;
  const std::string pipe = (folder / "plugin.so").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_failure(compile({"--target", "tpu:v5e:2x2", "--plugin", pipe, "--time-limit", "1"}),
                 "DeadlineExceededError",
                 "[compile] the compiler was stopped after 1 s (--time-limit)");
}

// The steps of the models that the examples train.
class CompileSlow : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(CompileSlow, ReportsMemoryAndOperations) {
  const char* const libtpu = std::getenv("TPU_LIBRARY_PATH");
  TANDEM_REQUIRE(libtpu && *libtpu, "libtpu");
  const auto [model, target] = GetParam();
  const Result result =
      run({"compile", "--model", model, "--target", "tpu:" + target, "--batch", "64", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["replicas"], target == "v4:2x2x1" ? 8 : 4);  // a v4 chip has two cores
  ASSERT_EQ(report["programs"].size(), 1u);
  const auto& program = report["programs"][0];
  EXPECT_GT(program["argument_bytes"], 0);
  EXPECT_GT(program["total_bytes"], program["argument_bytes"]);
  EXPECT_GT(program["flops"], 0);
  EXPECT_EQ(program["replicas"], report["replicas"]);
}

INSTANTIATE_TEST_SUITE_P(Targets, CompileSlow,
                         ::testing::Combine(::testing::Values("mlp", "lenet", "resnet20"),
                                            ::testing::Values("v4:2x2x1", "v5e:2x2", "v6e:2x2")));

TEST(CompileErrorSlow, ReportsThatATopologyIsUnknown) {
  const char* const libtpu = std::getenv("TPU_LIBRARY_PATH");
  TANDEM_REQUIRE(libtpu && *libtpu, "libtpu");
  expect_failure(compile({"--target", "tpu:v5e:999x999"}), "InvalidArgumentError", "999x999");
}

}  // namespace
}  // namespace tandem::compile_test
