#include "core/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tandem/errors.h"
#include "tandem/logging.h"

namespace tandem::log_test {
namespace {

TEST(Log, WritesToStderrFromInfoOn) {
  unsetenv("TANDEM_LOG_LEVEL");
  ::testing::internal::CaptureStderr();
  logging::debug("hidden {}", 1);
  logging::info("shown {}", 2);
  logging::warn("braces {{}} {}", "{}");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_NE(text.find("tandem info: shown 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tandem warning: braces {} {}\n"), std::string::npos) << text;
}

TEST(Log, LevelFromTheEnvironment) {
  setenv("TANDEM_LOG_LEVEL", "error", 1);
  ::testing::internal::CaptureStderr();
  logging::warn("hidden");
  logging::error("shown");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_NE(text.find("tandem error: shown\n"), std::string::npos) << text;
}

TEST(Log, UnknownLevelIsAWarning) {
  setenv("TANDEM_LOG_LEVEL", "loud", 1);
  ::testing::internal::CaptureStderr();
  logging::debug("hidden");
  logging::info("shown");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("expected debug, info, warn, error or off, got 'loud'"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_NE(text.find("shown"), std::string::npos);
}

TEST(Log, LevelOfTheProgramReplacesThatOfTheEnvironment) {
  setenv("TANDEM_LOG_LEVEL", "off", 1);
  EXPECT_EQ(logging::get_level(), "off");
  logging::set_level("WARNING");
  EXPECT_EQ(logging::get_level(), "warning");
  ::testing::internal::CaptureStderr();
  logging::info("hidden");
  logging::warn("shown");
  logging::set_level("debug");
  logging::debug("also shown");
  logging::set_level("warn");
  logging::info("hidden");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
  EXPECT_NE(text.find("tandem warning: shown\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tandem debug: also shown\n"), std::string::npos) << text;
}

TEST(Log, UnknownLevelOfTheProgramIsAnError) {
  logging::set_level("error");
  try {
    logging::set_level("loud");
    ADD_FAILURE() << "expected an error";
  } catch (const InvalidArgumentError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("expected level debug, info, warning, error or off, "
                        "got 'loud'"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(logging::get_level(), "error");
}

}  // namespace
}  // namespace tandem::log_test
