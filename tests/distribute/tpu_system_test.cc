#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/errors.h"
#include "support/pjrt.h"
#include "tandem/tandem.h"

namespace tandem::tpu_system_test {
namespace {

using distribute::TPUClusterResolver;
using testing::error_of;

class TpuSystem : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"}) unsetenv(name);
  }
};

class TpuSystemWithPlugin : public TpuSystem {
 protected:
  void SetUp() override {
    TpuSystem::SetUp();
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::load_pjrt_plugin(testing::first_plugin());
  }
};

template <class F>
std::string log_of(F&& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

constexpr const char* kAgain =
    "TPU system local has already been initialized. Reinitializing the TPU can cause previously "
    "created variables on TPU to be lost.";
constexpr const char* kUnknown =
    "You are shutting down a TPU system local that has not been initialized.";

TEST_F(TpuSystem, IsNotFoundWithoutTpus) {
  unsetenv("TANDEM_PJRT_PLUGIN");
  const std::string message =
      "TPUs not found in the cluster. Failed in initialization: no TPU is attached to this host: "
      "load the PJRT plug-in of an accelerator by config::load_pjrt_plugin() or TANDEM_PJRT_PLUGIN";
  const TPUClusterResolver local("local");
  EXPECT_EQ(error_of<NotFoundError>([&] { tpu::initialize_tpu_system(local); }), message);
  EXPECT_EQ(error_of<NotFoundError>([] { tpu::initialize_tpu_system(); }), message);
  EXPECT_EQ(error_of<NotFoundError>([] { TPUClusterResolver::connect("local"); }), message);
  // A failure initializes nothing.
  testing::expect_parts(log_of([&] { tpu::shutdown_tpu_system(local); }), {kUnknown});
}

TEST_F(TpuSystem, DefaultIsTheOneInTheEnvironment) {
  setenv("TPU_NAME", "my-tpu", 1);
  testing::expect_parts(error_of<UnimplementedError>([] { tpu::initialize_tpu_system(); }),
                        {"[initialize_tpu_system] cannot connect to the remote TPU 'my-tpu'"});
  EXPECT_EQ(TPUClusterResolver().tpu(), "my-tpu");
  setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.0.0.1:8470", 1);
  EXPECT_EQ(TPUClusterResolver().tpu(), "grpc://10.0.0.1:8470");
  setenv("TPU_NAME", "", 1);
  setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "", 1);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { TPUClusterResolver(); }),
            "[TPUClusterResolver] Please provide a TPU Name to connect to.");
}

TEST_F(TpuSystem, ElsewhereIsRefused) {
  const TPUClusterResolver remote("grpc://10.0.0.1:8470");
  EXPECT_FALSE(remote.is_local());
  const auto refused = [](const std::string& who) {
    return "[" + who +
           "] cannot connect to the remote TPU 'grpc://10.0.0.1:8470': Tandem runs on devices that "
           "are attached to this host, by their PJRT plug-in (config::load_pjrt_plugin() or "
           "TANDEM_PJRT_PLUGIN) and TPUClusterResolver(\"local\")";
  };
  EXPECT_EQ(error_of<UnimplementedError>([&] { tpu::initialize_tpu_system(remote); }),
            refused("initialize_tpu_system"));
  EXPECT_EQ(error_of<UnimplementedError>([&] { tpu::shutdown_tpu_system(remote); }),
            refused("shutdown_tpu_system"));
  EXPECT_EQ(error_of<UnimplementedError>([&] { distribute::TPUStrategy{remote}; }),
            refused("TPUStrategy"));
}

TEST_F(TpuSystem, IsNotInitializedInFunctions) {
  const std::string message =
      "initialize_tpu_system is not supported within tf.functions.  You should call "
      "initialize_tpu_system outside of your tf.function.";
  auto initialize = function([](const Tensor& x) {
    tpu::initialize_tpu_system(TPUClusterResolver("local"));
    return x + x;
  });
  auto shut_down = function([](const Tensor& x) {
    tpu::shutdown_tpu_system(TPUClusterResolver("local"));
    return x + x;
  });
  testing::expect_parts(error_of<RuntimeError>([&] { initialize(ones({2})); }), {message.c_str()});
  testing::expect_parts(error_of<RuntimeError>([&] { shut_down(ones({2})); }), {message.c_str()});
}

TEST_F(TpuSystemWithPlugin, WarnsOfASecondInitialization) {
  const std::string first = log_of([] { TPUClusterResolver::connect("local"); });
  testing::expect_parts(
      first, {"Initializing the TPU system: local", "Finished initializing TPU system."});
  EXPECT_EQ(first.find(kAgain), std::string::npos) << first;
  testing::expect_parts(log_of([] { tpu::initialize_tpu_system(); }), {kAgain});
}

TEST_F(TpuSystemWithPlugin, WarnsOfAnUnknownSystem) {
  tpu::initialize_tpu_system();
  const std::string known = log_of([] { tpu::shutdown_tpu_system(); });
  testing::expect_parts(
      known, {"Shutting down the TPU system: local", "Finished shutting down TPU system."});
  EXPECT_EQ(known.find(kUnknown), std::string::npos) << known;
  testing::expect_parts(log_of([] { tpu::shutdown_tpu_system(); }), {kUnknown});
  // A system that was shut down is initialized anew, without a warning.
  EXPECT_EQ(log_of([] { tpu::initialize_tpu_system(); }).find(kAgain), std::string::npos);
}

}  // namespace
}  // namespace tandem::tpu_system_test
