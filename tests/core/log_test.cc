#include "core/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

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

}  // namespace
}  // namespace tandem::log_test
