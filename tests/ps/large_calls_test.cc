#include "ps/large_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::large_calls_test {
namespace {

using testing::DirectChannel;
using testing::DirectServer;

constexpr LargeCallOptions kSmall{.whole = 1000, .part = 256, .in_flight = 3};
constexpr std::int64_t kSize = 2001;  // 8 KiB

class LargeCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    serve(server, store, kSmall);
    const auto see = [this](const std::string&, const rpc::Message& message) {
      largest = std::max(largest, rpc::frame_bytes(message));
    };
    server.on_request = see;
    server.on_reply = see;
  }
  static Tensor numbers(double first) { return range(first, first + kSize, 1.0); }

  ParameterStore store;
  DirectServer server;
  ServerClient client{std::make_shared<DirectChannel>(server), ServerClient::Limits(), kSmall};
  std::size_t largest = 0;
};

TEST_F(LargeCalls, VariablesOfAnySizeAreCreatedReadAssignedAndUpdated) {
  const ServerClient::NewVariable v{.id = 3, .name = "v", .value = numbers(0)};
  const ServerClient::NewVariable small{.id = 4, .name = "small", .value = ones({2})};
  client.create({&v, 1}).wait();
  client.create({&small, 1}).wait();
  EXPECT_EQ(store.read(3).value.to_vector<float>(), numbers(0).to_vector<float>());
  const std::vector<VariableId> ids = {4, 3};
  auto read = client.read(ids).wait();
  EXPECT_EQ(read[0].value.to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(read[1].value.to_vector<float>(), numbers(0).to_vector<float>());
  client.assign(3, numbers(7)).wait();
  EXPECT_EQ(store.read(3).value.to_vector<float>(), numbers(7).to_vector<float>());

  store.add_update(0, 0, testing::assign_add(kSize));
  client.apply({.updates = {{.index = 0, .inputs = {numbers(1)}}}}).wait();
  EXPECT_EQ(store.read(3).value.to_vector<float>()[kSize - 1], 2 * (kSize - 1) + 8);
  EXPECT_LE(largest, kSmall.whole);
  EXPECT_GT(server.by_method["LargeCall/SendPart"].calls, 90u);
}

// All parts are of the same moment, also if the variable is written meanwhile.
TEST_F(LargeCalls, AReadIsOfOneVersion) {
  store.create(3, "v", numbers(0));
  server.on_request = [&](const std::string& method, const rpc::Message&) {
    if (method == "LargeCall/FetchPart") store.assign(3, zeros({kSize}));
  };
  const VariableId id = 3;
  EXPECT_EQ(client.read({&id, 1}).wait()[0].value.to_vector<float>(),
            numbers(0).to_vector<float>());
}

TEST_F(LargeCalls, StartAgainIfTheServerWasRestarted) {
  store.create(3, "v", zeros({kSize}));
  int parts = 0;
  server.on_request = [&](const std::string& method, const rpc::Message&) {
    if (method.starts_with("LargeCall") && ++parts == 10) serve(server, store, kSmall);
  };
  client.assign(3, numbers(7)).wait();
  EXPECT_EQ(store.read(3).value.to_vector<float>(), numbers(7).to_vector<float>());
  parts = 0;
  const VariableId id = 3;
  EXPECT_EQ(client.read({&id, 1}).wait()[0].value.to_vector<float>(),
            numbers(7).to_vector<float>());
  EXPECT_GT(parts, 33);
}

}  // namespace
}  // namespace tandem::ps::large_calls_test
