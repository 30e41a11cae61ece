#include "core/module.h"

#include <gtest/gtest.h>

#include <string>

#include "comm/mpi/mpi_backend.h"
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
  try {
    find_in(module, "make");
    FAIL() << "there is no such module";
  } catch (const UnavailableError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("[carrier-pigeon] this build of Tandem has no carrier-pigeon backend"), 0u);
    EXPECT_NE(text.find("install the Debian package libpigeon-dev and build Tandem again"),
              std::string::npos)
        << text;
  }
}

// The state if only some targets were built: the build was configured with the module.
TEST(Module, OneThatIsNotBuiltYetNamesTheTarget) {
  TANDEM_REQUIRE(has_mpi(), "mpi");
  try {
    Module module = kMpiModule;
    module.file = "libtandem_mpi_that_is_not_built.so";
    find_in(module, "make");
    FAIL() << "there is no such file";
  } catch (const UnavailableError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("[mpi] the mpi backend is not built yet: cmake --build "), 0u) << text;
    EXPECT_TRUE(text.ends_with(" --target tandem_mpi")) << text;
    EXPECT_EQ(text.find("Debian"), std::string::npos) << text;
  }
}

TEST(Module, OneOfAnotherVersionIsRefused) {
  TANDEM_REQUIRE(has_mpi(), "mpi");
  try {
    find_in(kMpiModule, "no_such_function");
    FAIL() << "there is no such function";
  } catch (const UnavailableError& error) {
    EXPECT_NE(std::string(error.what()).find("belongs to another version of Tandem"),
              std::string::npos)
        << error.what();
  }
}

TEST(Mpi, WithoutMpirunThereIsNoGroup) {
  TANDEM_REQUIRE(has_mpi(), "mpi");
  ASSERT_FALSE(started_by_mpirun());
  try {
    make_mpi_backend();
    FAIL() << "mpirun has not started this";
  } catch (const FailedPreconditionError& error) {
    EXPECT_STREQ(error.what(),
                 "[mpi] this process was not started by mpirun: run `mpirun -n 4 PROGRAM`, or "
                 "choose another backend");
  }
}

}  // namespace
}  // namespace tandem::module_test
