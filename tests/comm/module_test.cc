#include "core/module.h"

#include <gtest/gtest.h>

#include <string>

#include "comm/mpi/mpi_backend.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/mpirun.h"
#include "tandem/errors.h"

namespace tandem::module_test {
namespace {

TEST(Module, OneThatIsNotThereNamesThePackage) {
  const Module module = {.backend = "carrier-pigeon",
                         .file = "libtandem_carrier_pigeon.so",
                         .library = "libpigeon-dev",
                         .runtime = "libpigeon0"};
  EXPECT_FALSE(can_load(module));
  const std::string text = testing::error_of<UnavailableError>([&] { find_in(module, "make"); });
  EXPECT_EQ(text.find("[carrier-pigeon] this build of Tandem has no carrier-pigeon backend"), 0u);
  EXPECT_NE(text.find("install the Debian package libpigeon-dev and build Tandem again"),
            std::string::npos)
      << text;
}

// The state if only some targets were built: the build was configured with the module.
TEST(Module, OneThatIsNotBuiltYetNamesTheTarget) {
  TANDEM_REQUIRE(has_mpi(), "mpi");
  const std::string text = testing::error_of<UnavailableError>([&] {
    Module module = kMpiModule;
    module.file = "libtandem_mpi_that_is_not_built.so";
    find_in(module, "make");
  });
  EXPECT_EQ(text.find("[mpi] the mpi backend is not built yet: cmake --build "), 0u) << text;
  EXPECT_TRUE(text.ends_with(" --target tandem_mpi")) << text;
  EXPECT_EQ(text.find("Debian"), std::string::npos) << text;
}

TEST(Module, OneOfAnotherVersionIsRefused) {
  TANDEM_REQUIRE(has_mpi(), "mpi");
  testing::expect_parts(
      testing::error_of<UnavailableError>([&] { find_in(kMpiModule, "no_such_function"); }),
      {"belongs to another version of Tandem"});
}

TEST(Mpi, WithoutMpirunThereIsNoGroup) {
  TANDEM_REQUIRE(has_mpi(), "mpi");
  ASSERT_FALSE(started_by_mpirun());
  EXPECT_EQ(testing::error_of<FailedPreconditionError>([&] { make_mpi_backend(); }),
            "[mpi] this process was not started by mpirun: run `mpirun -n 4 PROGRAM`, or choose "
            "another backend");
}

}  // namespace
}  // namespace tandem::module_test
