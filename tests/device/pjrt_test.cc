// The client of PJRT plug-ins, and their devices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "device/device_manager.h"
#include "device/pjrt/pjrt_device.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/pjrt.h"
#include "tandem/config.h"

namespace tandem::pjrt_test {
namespace {

using pjrt::Client;

class PjrtClient : public ::testing::TestWithParam<std::string (*)()> {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!GetParam()().empty(), "pjrt");
    client = &testing::client_of(GetParam()());
  }
  std::shared_ptr<pjrt::Buffer> send(const std::vector<float>& values, const Shape& shape,
                                     int device = 0) {
    auto kept = std::make_shared<std::vector<float>>(values);
    return client->from_host(kept->data(), float32, shape, device, kept);
  }
  static std::vector<float> values_of(pjrt::Buffer& buffer) {
    std::vector<float> values(static_cast<std::size_t>(buffer.shape().num_elements()));
    buffer.to_host(values.data(), values.size() * sizeof(float));
    return values;
  }

  Client* client = nullptr;
};

// x + 1 on `replicas` devices; the sum over the replicas.
std::string text_of_step(int replicas) {
  std::string ranks;
  for (int i = 0; i < replicas; ++i) ranks += (i > 0 ? ", " : "") + std::to_string(i);
  return "module @step attributes {mhlo.num_replicas = " + std::to_string(replicas) +
         " : i32, mhlo.num_partitions = 1 : i32} {\n"
         "func.func public @main(%x: tensor<3xf32> {tf.aliasing_output = 0 : i32}) -> "
         "(tensor<3xf32>, tensor<3xf32>) {\n"
         "%one = \"stablehlo.constant\"() {value = dense<1.0> : tensor<3xf32>} : () -> "
         "tensor<3xf32>\n"
         "%y = \"stablehlo.add\"(%x, %one) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n"
         "%s = \"stablehlo.all_reduce\"(%y) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
         "%c = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
         "\"stablehlo.return\"(%c) : (tensor<f32>) -> ()\n}) {replica_groups = dense<[[" +
         ranks + "]]> : tensor<1x" + std::to_string(replicas) +
         "xi64>} : (tensor<3xf32>) -> tensor<3xf32>\n"
         "\"func.return\"(%y, %s) : (tensor<3xf32>, tensor<3xf32>) -> ()\n}\n}\n";
}

pjrt::CompileOptions options_of(std::vector<int> devices) {
  const pjrt::ParameterType vector{float32, {3}};
  return {.name = "step",
          .devices = std::move(devices),
          .parameters = {{float32, {3}, true}},
          .results = {vector, vector}};
}

TEST_P(PjrtClient, TellsItsVersionAndDevices) {
  const pjrt::PluginInfo& plugin = client->plugin();
  EXPECT_EQ(plugin.api_major, 0);
  EXPECT_GE(plugin.api_minor, 81);
  EXPECT_EQ(plugin.platform, "cpu");
  EXPECT_GE(plugin.stablehlo_current, (std::array<std::int64_t, 3>{1, 13, 0}));
  ASSERT_EQ(client->devices().size(), 4u);
  EXPECT_EQ(client->devices()[2].id, 2);
  EXPECT_FALSE(client->memory_stats(0).has_value());  // this plug-in does not tell
}

TEST_P(PjrtClient, CopiesTensorsThere) {
  const auto buffer = send({1, 2, 3, 4, 5, 6}, {2, 3}, 3);
  EXPECT_EQ(buffer->device(), 3);
  EXPECT_EQ(buffer->dtype(), float32);
  EXPECT_EQ(values_of(*buffer), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  const auto copy = buffer->copy_to(1);
  EXPECT_EQ(copy->device(), 1);
  EXPECT_EQ(values_of(*copy), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_P(PjrtClient, RunsReplicasWithCollectives) {
  const auto program = client->compile(text_of_step(4), options_of({0, 1, 2, 3}));
  std::vector<pjrt::Executable::Buffers> arguments;
  for (int i = 0; i < 4; ++i) arguments.push_back({send({static_cast<float>(i), 0, 10}, {3}, i)});
  const auto results = program->run(std::move(arguments));
  ASSERT_EQ(results.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(values_of(*results[i][0]), (std::vector<float>{static_cast<float>(i) + 1, 1, 11}));
    EXPECT_EQ(values_of(*results[i][1]), (std::vector<float>{10, 4, 44}));
  }
}

// Replica 0 is on device 2.
TEST_P(PjrtClient, RunsOnTheGivenDevices) {
  const auto program = client->compile(text_of_step(2), options_of({2, 1}));
  const auto results = program->run({{send({0, 0, 0}, {3}, 2)}, {send({1, 1, 1}, {3}, 1)}});
  EXPECT_EQ(results[0][0]->device(), 2);
  EXPECT_EQ(values_of(*results[0][0]), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values_of(*results[1][1]), (std::vector<float>{3, 3, 3}));
}

// The argument's memory becomes the result's, unless something else refers to the buffer.
TEST_P(PjrtClient, DonatesOnlyBuffersThatNothingElseUses) {
  const auto program = client->compile(text_of_step(1), options_of({0}));
  const auto kept = send({5, 5, 5}, {3});
  const auto results = program->run({{kept}});
  EXPECT_EQ(values_of(*results[0][0]), (std::vector<float>{6, 6, 6}));
  EXPECT_EQ(values_of(*kept), (std::vector<float>{5, 5, 5}));
}

template <class E, class F>
void expect_error(F&& body, const std::string& text) {
  const std::string message = testing::error_of<E>(body);
  EXPECT_NE(message.find(text), std::string::npos) << message;
}

TEST_P(PjrtClient, ChecksArgumentsBeforeThePlugin) {
  const auto program = client->compile(text_of_step(2), options_of({0, 1}));
  const auto mine = [&](int device) { return send({1, 2, 3}, {3}, device); };
  expect_error<InvalidArgumentError>([&] { program->run({{mine(0)}}); },
                                     "[PJRT] 'step' has 2 replicas, got arguments for 1");
  expect_error<InvalidArgumentError>(
      [&] {
        program->run({{mine(0)}, {}});
      },
      "[PJRT] 'step' has 1 parameters, got 0 arguments");
  expect_error<InvalidArgumentError>(
      [&] {
        program->run({{mine(0)}, {mine(0)}});
      },
      "argument 0 of 'step' for replica 1: expected a buffer on device 1, got one on device 0");
  expect_error<InvalidArgumentError>(
      [&] {
        program->run({{mine(0)}, {send({1, 2}, {2}, 1)}});
      },
      "argument 0 of 'step': expected shape (3,) and dtype float32, got (2,) and float32");
  expect_error<InvalidArgumentError>(
      [&] {
        client->compile(text_of_step(2), options_of({0, 7}));
      },
      "expected devices below 4, got 7");
  expect_error<InvalidArgumentError>(
      [&] {
        client->compile(text_of_step(2), options_of({1, 1}));
      },
      "two replicas of 'step' are on device 1");
  expect_error<InvalidArgumentError>([&] { mine(4); }, "expected a device below 4, got 4");
}

TEST_P(PjrtClient, PassesOnTheErrorsOfThePlugin) {
  const std::string message = testing::any_error_of(
      [&] { client->compile("module { this is no program }", options_of({0})); });
  EXPECT_NE(message.find("[PJRT] compiling 'step': "), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Plugins, PjrtClient,
                         ::testing::Values(&testing::first_plugin, &testing::second_plugin),
                         [](const auto& info) { return info.index == 0 ? "First" : "Second"; });

// --- plug-ins that cannot be used ---

TEST(PjrtPlugin, IsNotFound) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  expect_error<NotFoundError>([] { pjrt::load_client("/nowhere/plugin.so", {}); },
                              "[PJRT] there is no plug-in '/nowhere/plugin.so'");
}

TEST(PjrtPlugin, IsNotALibrary) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  const testing::TemporaryDirectory folder;
  const std::string path = (folder / "plugin.so").string();
  std::ofstream(path) << "not a library";
  expect_error<InvalidArgumentError>([&] { pjrt::load_client(path, {}); },
                                     "is not a library that can be loaded");
}

TEST(PjrtPlugin, HasNoEntry) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  expect_error<InvalidArgumentError>(
      [] { pjrt::load_client("/lib/x86_64-linux-gnu/libm.so.6", {}); },
      "is not a PJRT plug-in: it has no function GetPjrtApi");
}

// --- contents ---

class PjrtMemory : public ::testing::Test {
 protected:
  void write(std::size_t at, const std::string& text) {
    contents.write(base + at, text.data(), text.size());
  }
  std::string read(std::size_t at, std::size_t bytes) {
    std::string text(bytes, '\0');
    contents.read(text.data(), base + at, bytes);
    return text;
  }

  std::byte memory[64];  // whose addresses the contents have
  std::byte* const base = memory;
  PjrtContents contents{nullptr, 0};
};

// Programs reuse the memory of values that are dead: a new one may lie inside of an old one.
TEST_F(PjrtMemory, KeepsATensorInThePlaceOfALargerDeadOne) {
  write(0, "dead dead dead dead.");
  write(5, "alive");
  write(12, "overlaps it");
  EXPECT_EQ(read(5, 5), "alive");
  EXPECT_EQ(read(6, 3), "liv");
  write(0, "dead");
  write(0, "DE");
  EXPECT_EQ(read(0, 23), "DEad alivedeoverlaps it");
}

TEST_F(PjrtMemory, KeepsACopyInThePlaceOfALargerDeadOne) {
  PjrtContents peer{nullptr, 1};
  for (PjrtContents* from : {&contents, &peer}) {
    std::byte* const source = base + 40;
    from->write(source, "a copy", 6);
    write(0, "dead dead dead dead.");
    contents.copy(base + 5, *from, source, 6);  // the whole tensor
    contents.copy(base + 14, *from, source + 2, 4);
    write(18, "overlaps it");
    EXPECT_EQ(read(5, 6), "a copy");
    EXPECT_EQ(read(0, 18), "dead a copyeadcopy");
  }
}

TEST_F(PjrtMemory, CannotBeReadBeforeItIsWritten) {
  write(4, "four");
  write(10, "ten");
  PjrtContents peer{nullptr, 1};
  for (const auto& [at, bytes] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 4}, {3, 2}, {4, 9}, {11, 3}, {20, 1}}) {
    EXPECT_EQ(testing::error_of<InternalError>([&, at = at, bytes = bytes] { read(at, bytes); }),
              "[PJRT] " + std::to_string(bytes) +
                  " bytes of a device's memory are read, and nothing has written all of them");
    EXPECT_THROW(peer.copy(base + at, contents, base + at, bytes), InternalError);
  }
  contents.erase(base + 5, 2);
  EXPECT_EQ(read(4, 1) + read(7, 1), "fr");
  EXPECT_THROW(read(4, 4), InternalError);
}

// --- devices ---

class PjrtDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::load_pjrt_plugin(testing::first_plugin());
  }
  static PjrtDevice& device(std::size_t index) {
    return static_cast<PjrtDevice&>(*DeviceManager::get().devices(DeviceType::kTpu, "test")[index]);
  }
};

TEST_F(PjrtDevices, AreListed) {
  const auto physical = config::list_physical_devices("TPU");
  ASSERT_EQ(physical.size(), 4u);
  EXPECT_EQ(physical[1].name, "/physical_device:TPU:1");
  EXPECT_EQ(config::get_device_details(physical[1]).platform, "cpu");
  config::set_visible_devices({physical[3], physical[1]}, "TPU");
  const auto logical = config::list_logical_devices("TPU");
  ASSERT_EQ(logical.size(), 2u);
  EXPECT_EQ(logical[0].name, "/job:localhost/replica:0/task:0/device:TPU:0");
  EXPECT_EQ(device(0).client_index(), 3);
  expect_error<RuntimeError>([] { config::load_pjrt_plugin("/another/plugin.so"); },
                             "The PJRT plug-in cannot be modified after being initialized");
}

TEST_F(PjrtDevices, HoldTensorsByAddress) {
  PjrtDevice& tpu = device(1);
  std::vector<float> values = {1, 2, 3, 4, 5, 6}, read(6);
  auto* memory = static_cast<std::byte*>(tpu.allocator().allocate(24));
  tpu.copy_from_host(memory, values.data(), 24);
  EXPECT_EQ(tpu.contents().buffer(memory, float32, {2, 3})->shape(), (Shape{2, 3}));
  const float changed = 9;  // a part of it
  tpu.copy_from_host(memory + 8, &changed, 4);
  tpu.copy_to_host(read.data(), memory, 24);
  EXPECT_EQ(read, (std::vector<float>{1, 2, 9, 4, 5, 6}));
  // The buffer has the new elements, and a part of it is a tensor as well.
  float part[2];
  tpu.contents().buffer(memory + 8, float32, {2})->to_host(part, sizeof part);
  EXPECT_EQ(part[0], 9);
  EXPECT_EQ(part[1], 4);
  // A copy shares the elements until one side is written.
  auto* copy = static_cast<std::byte*>(device(2).allocator().allocate(24));
  device(2).copy_from_peer(copy, tpu, memory, 24);
  tpu.copy_from_host(memory, &changed, 4);
  device(2).copy_to_host(read.data(), copy, 24);
  EXPECT_EQ(read[0], 1);
  EXPECT_GE(tpu.allocator().stats().bytes_in_use, 24);
  device(2).allocator().deallocate(copy);
  tpu.allocator().deallocate(memory);
  EXPECT_EQ(tpu.allocator().stats().bytes_in_use, 0);
}

}  // namespace
}  // namespace tandem::pjrt_test
