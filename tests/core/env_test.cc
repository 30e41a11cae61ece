#include "core/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::env_test {
namespace {

using testing::error_of;

constexpr const char* kVariable = "TANDEM_ENV_TEST";

TEST(Env, UnsetAndEmptyAreNothing) {
  unsetenv(kVariable);
  EXPECT_EQ(env_string(kVariable), std::nullopt);
  EXPECT_EQ(env_int(kVariable), std::nullopt);
  EXPECT_EQ(env_bool(kVariable), std::nullopt);
  setenv(kVariable, "", 1);
  EXPECT_EQ(env_string(kVariable), std::nullopt);
}

TEST(Env, IntegersAreCheckedAgainstTheirRange) {
  setenv(kVariable, "42", 1);
  EXPECT_EQ(env_int(kVariable), 42);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { env_int(kVariable, 0, 9); }),
            "[Environment] TANDEM_ENV_TEST: expected an integer in [0, 9], got '42'");
  for (const char* bad : {"4x", "x", " 4", "99999999999999999999"}) {
    setenv(kVariable, bad, 1);
    EXPECT_THROW(env_int(kVariable), InvalidArgumentError) << bad;
  }
}

TEST(Env, BooleansHaveSeveralSpellings) {
  for (const char* text : {"1", "true", "TRUE", "yes", "On"}) {
    setenv(kVariable, text, 1);
    EXPECT_EQ(env_bool(kVariable), true) << text;
  }
  for (const char* text : {"0", "false", "no", "OFF"}) {
    setenv(kVariable, text, 1);
    EXPECT_EQ(env_bool(kVariable), false) << text;
  }
  setenv(kVariable, "maybe", 1);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { env_bool(kVariable); }),
            "[Environment] TANDEM_ENV_TEST: expected true or false, got 'maybe'");
}

}  // namespace
}  // namespace tandem::env_test
