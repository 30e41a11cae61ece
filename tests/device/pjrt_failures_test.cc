// PJRT plug-ins of other versions, and plug-ins that fail, with a fake one.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "device/pjrt/client.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/fake_pjrt.h"
#include "tandem/config.h"

namespace tandem::pjrt_failures_test {
namespace {

using testing::expect_parts;

class PjrtFailures : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(testing::FakePlugin::is_there(), "pjrt");
    plugin = std::make_unique<testing::FakePlugin>();
  }
  std::shared_ptr<pjrt::Client> load(const pjrt::Options& options = {}) const {
    return pjrt::load_client(plugin->path, options);
  }
  // The exception of loading the plug-in, with its kind.
  std::string loading_error() const {
    return testing::any_error_of([this] { load(); });
  }

  std::unique_ptr<testing::FakePlugin> plugin;
};

std::shared_ptr<pjrt::Buffer> send(pjrt::Client& client, const std::vector<float>& values,
                                   int device = 0) {
  auto kept = std::make_shared<std::vector<float>>(values);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return client.from_host(kept->data(), float32, shape, device, kept);
}

std::vector<float> values_of(pjrt::Buffer& buffer) {
  std::vector<float> values(static_cast<std::size_t>(buffer.shape().num_elements()));
  buffer.to_host(values.data(), values.size() * sizeof(float));
  return values;
}

// A program of one donated parameter and one result, which the fake makes equal.
std::unique_ptr<pjrt::Executable> compile(pjrt::Client& client, std::vector<int> devices = {0}) {
  return client.compile("\"func.return\"(%x) : (tensor<3xf32>) -> ()",
                        {.name = "step",
                         .devices = std::move(devices),
                         .parameters = {{float32, {3}, true}},
                         .results = {{float32, {3}}}});
}

// --- versions ---

TEST_F(PjrtFailures, HasNoTable) {
  (*plugin)->has_table = false;
  expect_parts(loading_error(), {"InternalError: [PJRT] GetPjrtApi of '", "' returned nothing"});
}

TEST_F(PjrtFailures, IsOfAnotherMajorVersion) {
  (*plugin)->major = 1;
  (*plugin)->minor = 2;
  expect_parts(loading_error(), {"FailedPreconditionError: [PJRT] '", "plugin.so",
                                 "has version 1.2 of the PJRT C API; expected 0.57 or a later"});
}

TEST_F(PjrtFailures, IsTooOld) {
  (*plugin)->minor = 56;
  expect_parts(loading_error(), {"FailedPreconditionError: [PJRT] '",
                                 "has version 0.56 of the PJRT C API; expected 0.57"});
  (*plugin)->minor = 57;
  EXPECT_EQ(loading_error(), "no error");
}

TEST_F(PjrtFailures, HasATableThatEndsTooEarly) {
  (*plugin)->table_size = 400;
  expect_parts(loading_error(), {"FailedPreconditionError: [PJRT] '", "lacks functions"});
  (*plugin)->table_size = 16;  // without the version
  expect_parts(loading_error(), {"FailedPreconditionError: [PJRT] '", "has version -1.-1"});
}

// Where PJRT_Executable_GetCompiledMemoryStats would be, which was added later.
constexpr std::size_t kLateFunctions = 808;

TEST_F(PjrtFailures, LacksLateFunctions) {
  {
    const auto client = load();
    EXPECT_EQ(compile(*client)->memory().temporaries, 7);
  }
  const testing::FakePlugin old;
  old->minor = 60;
  old->table_size = kLateFunctions;
  const auto client = pjrt::load_client(old.path, {});
  const auto program = compile(*client);
  EXPECT_EQ(program->memory().temporaries, 0);
  EXPECT_EQ(program->flops(), 42.0);
  EXPECT_EQ(values_of(*program->run({{send(*client, {1, 2, 3})}})[0][0]),
            (std::vector<float>{1, 2, 3}));
}

// --- errors ---

TEST_F(PjrtFailures, ErrorsHaveTheClassOfTheirCode) {
  const std::vector<std::string> kinds = {
      "AbortedError",          "InternalError",          "InvalidArgumentError",
      "DeadlineExceededError", "NotFoundError",          "InternalError",
      "InternalError",         "ResourceExhaustedError", "FailedPreconditionError",
      "AbortedError",          "OutOfRangeError",        "UnimplementedError",
      "InternalError",         "UnavailableError",       "InternalError",
      "InternalError"};
  for (std::size_t code = 1; code <= kinds.size(); ++code) {
    (*plugin)->fail_in("PJRT_Client_Create", static_cast<int>(code));
    EXPECT_EQ(loading_error(),
              kinds[code - 1] + ": [PJRT] creating a client of '" + plugin->path + "': it fails");
  }
  EXPECT_EQ((*plugin)->live, 0);
}

// Nothing of the plug-in is left after a failure, and it can be loaded again.
TEST_F(PjrtFailures, FailsWhileItIsLoaded) {
  const std::map<std::string, std::string> steps = {
      {"PJRT_Plugin_Initialize", "initialising '"},
      {"PJRT_Plugin_Attributes", "reading the attributes of the plug-in: it fails"},
      {"PJRT_Client_Create", "creating a client of '"},
      {"PJRT_Client_PlatformName", "reading the platform: it fails"},
      {"PJRT_Client_PlatformVersion", "reading the platform's version: it fails"},
      {"PJRT_Client_AddressableDevices", "listing the devices: it fails"},
      {"PJRT_Device_GetDescription", "describing a device: it fails"},
      {"PJRT_DeviceDescription_Attributes", "describing a device: it fails"},
      {"PJRT_Device_AddressableMemories", "describing a device: it fails"},
      {"PJRT_Memory_Kind", "describing a memory: it fails"}};
  for (const auto& [function, message] : steps) {
    const testing::FakePlugin failing;
    failing->fail_in(function, 14);
    const std::string error = testing::any_error_of([&] { pjrt::load_client(failing.path, {}); });
    EXPECT_NE(error.find("UnavailableError: [PJRT] " + message), std::string::npos) << error;
    EXPECT_EQ(failing->live, 0) << function;
    failing->failing.clear();
    EXPECT_EQ(pjrt::load_client(failing.path, {})->devices().size(), 2u) << function;
  }
}

TEST_F(PjrtFailures, FailsAtTheSecondDevice) {
  (*plugin)->fail_in("PJRT_Device_LocalHardwareId");
  (*plugin)->passes = 1;
  EXPECT_EQ(loading_error(), "InternalError: [PJRT] describing a device: it fails");
  EXPECT_EQ((*plugin)->live, 0);
}

TEST_F(PjrtFailures, FailsToFindATopology) {
  for (const char* function :
       {"PJRT_TopologyDescription_Create", "PJRT_TopologyDescription_PlatformName",
        "PJRT_TopologyDescription_GetDeviceDescriptions", "PJRT_DeviceDescription_Kind"}) {
    (*plugin)->fail_in(function, 5);
    const std::string error =
        testing::any_error_of([this] { pjrt::load_compiler(plugin->path, "v9:2x2"); });
    expect_parts(error, {"NotFoundError: [PJRT] ", ": it fails"});
    EXPECT_EQ((*plugin)->live, 0) << function;
  }
}

TEST_F(PjrtFailures, FailsToCompile) {
  const auto client = load();
  const int before = (*plugin)->live;
  for (const char* function : {"PJRT_Client_Compile", "PJRT_LoadedExecutable_GetExecutable",
                               "PJRT_Executable_NumOutputs"}) {
    (*plugin)->fail_in(function, 8);
    expect_parts(testing::any_error_of([&] { compile(*client); }),
                 {"ResourceExhaustedError: [PJRT] ", ": it fails"});
    EXPECT_EQ((*plugin)->live, before) << function;
  }
}

TEST_F(PjrtFailures, HasAProgramOfOtherResults) {
  const auto client = load();
  const int before = (*plugin)->live;
  EXPECT_EQ(testing::any_error_of([&] {
              client->compile("return", {.name = "p", .devices = {0}, .results = {{float32, {3}}}});
            }),
            "InternalError: [PJRT] 'p' has 0 results, expected 1");
  EXPECT_EQ((*plugin)->live, before);
}

TEST_F(PjrtFailures, FailsToCopyToADevice) {
  const auto client = load();
  const int before = (*plugin)->live;
  (*plugin)->fail_in("PJRT_Client_BufferFromHostBuffer", 8);
  EXPECT_EQ(testing::any_error_of([&] {
              send(*client, {1, 2, 3}, 1);
            }),
            "ResourceExhaustedError: [PJRT] copying a tensor of shape (3,) and dtype float32 to "
            "FAKE_1: it fails");
  (*plugin)->fail_in("PJRT_Event_OnReady");
  EXPECT_EQ(testing::any_error_of([&] {
              send(*client, {1, 2, 3});
            }),
            "InternalError: [PJRT] waiting for a copy: it fails");
  EXPECT_EQ((*plugin)->live, before);
}

TEST_F(PjrtFailures, FailsToCopyFromADevice) {
  const auto client = load();
  const auto buffer = send(*client, {1, 2, 3});
  const int before = (*plugin)->live;
  (*plugin)->fail_in("PJRT_Buffer_ToHostBuffer");
  EXPECT_EQ(testing::any_error_of([&] { values_of(*buffer); }),
            "InternalError: [PJRT] copying a tensor to the host: it fails");
  (*plugin)->fail_in("PJRT_Buffer_CopyToDevice", 12);
  EXPECT_EQ(testing::any_error_of([&] { buffer->copy_to(1); }),
            "UnimplementedError: [PJRT] copying a tensor between devices: it fails");
  (*plugin)->failing.clear();
  EXPECT_EQ(values_of(*buffer), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ((*plugin)->live, before);
}

TEST_F(PjrtFailures, FailsToStartAProgram) {
  const auto client = load();
  const auto program = compile(*client);
  (*plugin)->fail_in("PJRT_LoadedExecutable_Execute", 8);
  std::vector<pjrt::Executable::Buffers> arguments = {{send(*client, {1, 2, 3})}};
  EXPECT_EQ(testing::any_error_of([&] { program->run(arguments); }),
            "ResourceExhaustedError: [PJRT] running 'step': it fails");
  (*plugin)->failing.clear();
  EXPECT_EQ(values_of(*program->run(arguments)[0][0]), (std::vector<float>{1, 2, 3}));
}

// Everyone who reads a result of a program that fails later gets its error.
TEST_F(PjrtFailures, FailsWhileAProgramRuns) {
  const auto client = load();
  const auto program = compile(*client);
  (*plugin)->fail_in("results", 10);
  const auto results = program->run({{send(*client, {1, 2, 3})}});
  for (int reader = 0; reader < 2; ++reader)
    EXPECT_EQ(testing::any_error_of([&] { values_of(*results[0][0]); }),
              "AbortedError: [PJRT] computing a tensor: it fails");
}

TEST_F(PjrtFailures, DoesNotFinishAProgram) {
  setenv("TANDEM_PJRT_TIMEOUT", "1", 1);
  const auto client = load();
  {
    const auto results = compile(*client)->run({{send(*client, {1, 2, 3})}});
    (*plugin)->late_elements = true;
    EXPECT_EQ(testing::any_error_of([&] { values_of(*results[0][0]); }),
              "DeadlineExceededError: [PJRT] computing a tensor: the device has not finished "
              "within 1 s (TANDEM_PJRT_TIMEOUT)");
  }
  const int unfinished = (*plugin)->live;
  (*plugin)->finish_elements();
  EXPECT_EQ((*plugin)->live, unfinished - 1) << "the event is not freed";
}

TEST_F(PjrtFailures, HasAnInvalidTimeLimit) {
  setenv("TANDEM_PJRT_TIMEOUT", "soon", 1);
  expect_parts(loading_error(), {"InvalidArgumentError: ", "TANDEM_PJRT_TIMEOUT", "soon"});
}

TEST_F(PjrtFailures, DoesNotTellItsMemory) {
  const auto client = load();
  EXPECT_EQ(client->memory_stats(0)->bytes_in_use, 64);
  EXPECT_FALSE(client->memory_stats(0)->bytes_limit.has_value());
  (*plugin)->fail_in("PJRT_Device_MemoryStats", 12);
  EXPECT_FALSE(client->memory_stats(0).has_value());
  (*plugin)->fail_in("PJRT_Device_MemoryStats", 13);
  EXPECT_EQ(testing::any_error_of([&] { client->memory_stats(0); }),
            "InternalError: [PJRT] reading memory statistics: it fails");
}

// --- what a plug-in is given ---

TEST_F(PjrtFailures, GetsItsOptions) {
  load({{"text", std::string("a b")}, {"count", std::int64_t{3}}, {"flag", true}, {"share", 0.5f}});
  EXPECT_EQ((*plugin)->options, (std::map<std::string, std::string>{{"count", "int64 3"},
                                                                    {"flag", "bool true"},
                                                                    {"share", "float 0.500000"},
                                                                    {"text", "string a b"}}));
  EXPECT_EQ((*plugin)->live, 0);
}

// Programs name devices by their identifiers, which are not their positions: 11 and 10 here.
TEST_F(PjrtFailures, GetsTheIdentifiersOfDevices) {
  const auto client = load();
  EXPECT_EQ(client->devices()[1].id, 11);
  compile(*client, {1, 0});
  const std::string assignment = "\x08\x02\x10\x01\x1a\x04\x08\x0b\x08\x0a";
  EXPECT_EQ((*plugin)->compile_options, "\x1a\x10\x20\x02\x28\x01\x4a\x0a" + assignment);
}

// Host memory is kept until the plug-in has read it.
TEST_F(PjrtFailures, ReadsHostMemoryLater) {
  const auto client = load();
  (*plugin)->late_transfers = true;
  auto host = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::weak_ptr<std::vector<float>> kept = host;
  const auto buffer = client->from_host(host->data(), float32, {3}, 0, host);
  host.reset();
  EXPECT_FALSE(kept.expired());
  (*plugin)->finish_transfers();
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(values_of(*buffer), (std::vector<float>{1, 2, 3}));
}

TEST_F(PjrtFailures, DonatesWhatNothingElseUses) {
  const auto client = load();
  const auto program = compile(*client);
  std::shared_ptr<pjrt::Buffer> kept = send(*client, {1, 2, 3});
  program->run({{kept}});
  EXPECT_EQ((*plugin)->not_donatable, std::vector<std::int64_t>{0});
  std::vector<pjrt::Executable::Buffers> arguments(1);
  arguments[0].push_back(std::move(kept));
  program->run(arguments);
  EXPECT_EQ((*plugin)->not_donatable, std::vector<std::int64_t>{});
}

TEST_F(PjrtFailures, FreesEverything) {
  {
    const auto client = load();
    const auto results = compile(*client)->run({{send(*client, {1, 2, 3})}});
    results[0][0]->copy_to(1);
  }
  EXPECT_EQ((*plugin)->live, 0);
}

// --- devices ---

TEST_F(PjrtFailures, DevicesTellTheirPlaceAndMemory) {
  (*plugin)->memory_limit = 1 << 20;
  config::load_pjrt_plugin(plugin->path);
  const auto physical = config::list_physical_devices("TPU");
  ASSERT_EQ(physical.size(), 2u);
  const auto details = config::get_device_details(physical[1]);
  EXPECT_EQ(details.platform, "fake");
  EXPECT_EQ(details.device_name, "Fake v1");
  EXPECT_EQ(details.memory_bytes, 1 << 20);
  EXPECT_EQ(details.coordinates, (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(details.core_on_chip, 1);
}

TEST_F(PjrtFailures, FailedPluginsDoNotChangeTheDevices) {
  (*plugin)->fail_in("PJRT_Client_Create", 9);
  EXPECT_EQ(
      testing::any_error_of([this] { config::load_pjrt_plugin(plugin->path); }),
      "FailedPreconditionError: [PJRT] creating a client of '" + plugin->path + "': it fails");
  EXPECT_TRUE(config::list_physical_devices("TPU").empty());
  (*plugin)->failing.clear();
  config::load_pjrt_plugin(plugin->path);
  EXPECT_EQ(config::list_logical_devices("TPU").size(), 2u);
}

}  // namespace
}  // namespace tandem::pjrt_failures_test
