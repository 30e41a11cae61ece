// `tandem train` as the ranks of a job.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "tools/command.h"

namespace tandem {
namespace {

using testing::read_file;
using testing::Result;
using testing::run;
using testing::TemporaryDirectory;

std::vector<std::string> training(const std::string& strategy, const std::string& report) {
  return {"train", "--model",  "mlp", "--data",     "synthetic", "--limit",  "210", "--batch",
          "64",    "--epochs", "2",   "--strategy", strategy,    "--report", report};
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
    for (const char* figures : {"train_loss", "train_accuracy"})
      for (std::size_t epoch = 0; epoch < 2; ++epoch)
        EXPECT_NEAR(report[figures][epoch].get<double>(), expected[figures][epoch].get<double>(),
                    1e-5)
            << figures << " with " << ranks;
    for (const char* figure : {"test_loss", "test_accuracy"})
      EXPECT_NEAR(report[figure].get<double>(), expected[figure].get<double>(), 1e-5) << figure;
  }
}

}  // namespace
}  // namespace tandem
