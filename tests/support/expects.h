// Prerequisites that a machine may lack (real data, a GPU, a file system that can be filled).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

namespace tandem::testing {

// Whether TANDEM_CI_EXPECTS ("mnist,cifar10,gpu") lists `what` for this machine. A test that lacks
// it then fails instead of being skipped.
inline bool ci_expects(const std::string& what) {
  const char* list = std::getenv("TANDEM_CI_EXPECTS");
  std::istringstream items(list ? list : "");
  for (std::string item; std::getline(items, item, ',');)
    if (item == what) return true;
  return false;
}

// The directory of the real data set `name` ("mnist", "cifar10"): in $TANDEM_DATA, or else in
// ../shared/data beside the source tree. Empty if it does not exist.
inline std::filesystem::path data_folder(const std::string& name) {
  const char* set = std::getenv("TANDEM_DATA");
  const std::filesystem::path folder =
      (set && *set ? std::filesystem::path(set)
                   : std::filesystem::path(TANDEM_SOURCE_DIR) / "../shared/data") /
      name;
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace tandem::testing

// Ends the test unless `condition` holds: skips it, or fails if the machine is expected to have
// `what`.
#define TANDEM_REQUIRE(condition, what)                                                       \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      if (::tandem::testing::ci_expects(what))                                                \
        FAIL() << what << " is missing, and TANDEM_CI_EXPECTS says that this machine has it"; \
      GTEST_SKIP() << what << " is not on this machine";                                      \
    }                                                                                         \
  } while (false)
