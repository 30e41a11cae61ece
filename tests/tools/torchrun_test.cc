// Ranks under torchrun, if it is installed: they find each other although it runs its own store.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/expects.h"
#include "support/files.h"
#include "support/processes.h"

namespace tandem::torchrun_test {
namespace {

using testing::free_port;
using testing::read_file;
using testing::TemporaryDirectory;

// Starts three ranks by `torchrun OPTIONS` and expects that they find each other.
void expect_meeting(const std::string& options) {
  const TemporaryDirectory folder;
  const std::string out = (folder / "out").string();
  // Older versions fail under newer Pythons unless redirects are given.
  const std::string command = "torchrun -r 1 -t 1 --log_dir " + (folder / "log").string() + " " +
                              options + " --nproc_per_node 3 --no_python " +
                              TANDEM_RENDEZVOUS_PROGRAM + " >" + out + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(out);
  for (const char* line : {"rank 0 of 3: 012", "rank 1 of 3: 012", "rank 2 of 3: 012"})
    EXPECT_NE(read_file(out).find(line), std::string::npos) << read_file(out);
}

bool has_torchrun() { return std::system("torchrun --help >/dev/null 2>&1") == 0; }

TEST(TorchrunSlow, WithItsStoreOnThePort) {
  TANDEM_REQUIRE(has_torchrun(), "torchrun");
  expect_meeting("--master_port " + std::to_string(free_port()));
}

TEST(TorchrunSlow, WithTheStoreOnAnotherPort) {
  TANDEM_REQUIRE(has_torchrun(), "torchrun");
  expect_meeting("--standalone");
}

}  // namespace
}  // namespace tandem::torchrun_test
