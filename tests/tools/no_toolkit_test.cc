// Tandem without the CUDA toolkit: built with it and run on a machine without it, or built
// without it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/built.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/mount_namespace.h"
#include "tools/command.h"

namespace tandem::no_toolkit_test {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::Result;
using testing::run;
using testing::TemporaryDirectory;
using testing::training;
using Environment = std::vector<std::pair<std::string, std::string>>;

// The results of a short training that do not depend on the clock.
nlohmann::json results_of_training(const Environment& environment = {}) {
  const TemporaryDirectory folder;
  const std::string report = (folder / "report.json").string();
  const Result result = run(training({"--report", report}), {.environment = environment});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err.find("GPU"), std::string::npos) << result.err;
  const auto all = nlohmann::json::parse(read_file(report), nullptr, false);
  nlohmann::json results;
  for (const char* name : {"train_loss", "test_loss", "test_accuracy", "devices"})
    results[name] = all.value(name, nlohmann::json());
  return results;
}

// Hides the toolkit's directory from this process and its children.
bool hide_toolkit() {
  std::error_code unknown;
  const fs::path folder = fs::canonical(TANDEM_CUDA_TOOLKIT, unknown);
  return !unknown && testing::enter_mount_namespace() &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4k") == 0;
}

bool there_is_cublas() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return true;
  return false;
}

TEST(NoToolkit, ABuildWithTheModuleRunsWithoutTheToolkit) {
  TANDEM_REQUIRE(testing::built_module("cuda"), "cuda");
  const nlohmann::json with = results_of_training();
  TANDEM_REQUIRE(hide_toolkit(), "mount");
  ASSERT_FALSE(there_is_cublas()) << "the toolkit is elsewhere as well";
  EXPECT_EQ(results_of_training(), with);
}

// There is a driver, but no cuBLAS.
TEST(NoToolkit, AMissingLibraryIsReported) {
  TANDEM_REQUIRE(testing::built_module("cuda"), "cuda");
  TANDEM_REQUIRE(hide_toolkit(), "mount");
  const Result result =
      run({"devices"}, {.environment = {{"LD_LIBRARY_PATH", TANDEM_BROKEN_DRIVER}}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("GPUs are not used: [cuda] cannot load the cuda backend"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("libcublasLt.so"), std::string::npos) << result.err;
}

// There is a driver, but the installed library has no CUDA module: a GPU may exist but is not used.
TEST(NoToolkit, AMissingModuleIsReportedOnce) {
  const TemporaryDirectory alone;
  fs::copy_file(fs::canonical(TANDEM_LIBRARY), alone / "libtandem.so.1");
  const Result result =
      run({"devices"},
          {.environment = {{"LD_LIBRARY_PATH", alone.path().string() + ":" TANDEM_BROKEN_DRIVER}}});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::size_t warning = result.err.find("GPUs are not used: [cuda] this build of Tandem has");
  ASSERT_NE(warning, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("GPUs are not used", warning + 1), std::string::npos) << result.err;
  EXPECT_NE(result.err.find((alone / "libtandem_cuda.so").string()), std::string::npos)
      << result.err;
}

TEST(NoToolkit, TheLibraryWithoutTheModuleGivesTheSameResults) {
  const nlohmann::json with = results_of_training();
  const TemporaryDirectory alone;
  fs::copy_file(fs::canonical(TANDEM_LIBRARY), alone / "libtandem.so.1");
  EXPECT_EQ(results_of_training({{"LD_LIBRARY_PATH", alone.path().string()}}), with);
}

}  // namespace
}  // namespace tandem::no_toolkit_test
