// examples/10_horovod.cpp, alone and under the launchers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/expects.h"
#include "support/mpirun.h"
#include "tools/command.h"

namespace tandem::horovod_example_test {
namespace {

using testing::read_file;
using testing::TemporaryDirectory;

const std::string kExample = TANDEM_HOROVOD_EXAMPLE;

TEST(HorovodExample, RunsAlone) {
  TANDEM_REQUIRE(!kExample.empty(), "examples");
  const TemporaryDirectory folder;
  const std::string out = (folder / "out").string();
  ASSERT_EQ(std::system((kExample + " >" + out + " 2>&1").c_str()), 0) << read_file(out);
  EXPECT_EQ(read_file(out), "ranks 1 mean rank 0\n");
}

TEST(HorovodExample, RunsUnderTandemRun) {
  TANDEM_REQUIRE(!kExample.empty(), "examples");
  for (const auto& [ranks, text] :
       {std::pair{"2", "[0] ranks 2 mean rank 0.5\n"}, {"4", "[0] ranks 4 mean rank 1.5\n"}})
    for (const char* gpus : {"", "2"}) {
      const testing::Result result = testing::run(
          {"run", "-n", ranks, "--", kExample}, {.environment = {{"TANDEM_EMULATED_GPUS", gpus}}});
      EXPECT_EQ(result.status, 0) << result.err;
      EXPECT_EQ(result.out, text) << result.err;
    }
}

TEST(HorovodExampleSlow, RunsUnderMpirun) {
  TANDEM_REQUIRE(!kExample.empty(), "examples");
  TANDEM_REQUIRE(can_use_mpirun(), "mpirun");
  for (const char* backend : {"", "mpi"})
    for (const auto& [ranks, text] :
         {std::pair{"2", "ranks 2 mean rank 0.5\n"}, {"4", "ranks 4 mean rank 1.5\n"}}) {
      const TemporaryDirectory folder;
      const std::string out = (folder / "out").string(), err = (folder / "err").string();
      const std::string command = kSessionFolder + ("=" + folder.path().string()) +
                                  " HOROVOD_CPU_OPERATIONS=" + backend +
                                  " mpirun --allow-run-as-root --oversubscribe -np " + ranks + " " +
                                  kExample + " >" + out + " 2>" + err;
      EXPECT_EQ(std::system(command.c_str()), 0) << read_file(err);
      EXPECT_EQ(read_file(out), text) << read_file(err);
    }
}

}  // namespace
}  // namespace tandem::horovod_example_test
