// A parameter server over gRPC.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "ps/in_process.h"
#include "ps/server_client.h"
#include "ps/server_methods.h"
#include "ps/server_service.h"
#include "ps/tensor_message.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/expects.h"
#include "support/tensors.h"

namespace tandem::ps::server_test {
namespace {

using namespace std::chrono_literals;
using tandem::testing::expect_error;
using testing::assign_add;

class ParameterServer : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
    start(0);
  }

  // Starts a server with the store.
  void start(std::uint16_t port) {
    server_ = rpc::make_grpc_server({.port = port, .token = "secret"});
    serve(*server_, store);
    server_->start();
  }
  std::unique_ptr<rpc::Channel> channel() {
    return rpc::make_grpc_channel({.host = "127.0.0.1",
                                   .port = server_->port(),
                                   .task = "ps:0",
                                   .caller = "worker:0",
                                   .token = "secret"});
  }
  ServerClient client(std::chrono::milliseconds limit = 20s) {
    return {channel(), {.call = limit}};
  }

  ParameterStore store;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(ParameterServer, HoldsVariables) {
  ServerClient server = client();
  const std::vector<ServerClient::NewVariable> variables = {
      {.id = 3, .name = "a", .value = constant({{1.0f, 2.0f}, {3.0f, 4.0f}})},
      {.id = 9, .name = "b", .value = constant(5, {.dtype = int64})},
      {.id = 10, .name = "empty", .value = zeros({0, 4})}};
  server.create(variables).wait();
  EXPECT_EQ(store.num_variables(), 3u);
  const std::vector<VariableId> ids = {10, 9, 3};
  auto read = server.read(ids).wait();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].value.shape(), Shape({0, 4}));
  EXPECT_EQ(read[1].value.item<std::int64_t>(), 5);
  EXPECT_EQ(read[2].value.to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(read[2].value.shape(), Shape({2, 2}));
  server.assign(9, constant(-1, {.dtype = int64})).wait();
  read = server.read(ids).wait();
  EXPECT_EQ(read[1].value.item<std::int64_t>(), -1);
  EXPECT_EQ(read[1].version, 1u);
  const std::vector<VariableId> removed = {3, 10, 77};
  for (int repeated = 0; repeated < 2; ++repeated) server.remove(removed).wait();
  EXPECT_EQ(store.num_variables(), 1u);
  expect_error<NotFoundError>([&] { server.read(ids).wait(); }, "there is no variable 10 here");
}

TEST_F(ParameterServer, ReadsRows) {
  ServerClient server = client();
  const std::vector<ServerClient::NewVariable> variables = {
      {.id = 3, .name = "a", .value = constant({{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}})},
      {.id = 9, .name = "b", .value = constant({10, 20, 30})},
      {.id = 10, .name = "scalar", .value = constant(5)}};
  server.create(variables).wait();
  const auto numbers = [](std::initializer_list<std::int64_t> list) {
    return constant(std::vector<std::int64_t>(list));
  };
  const auto rows = [&](VariableId id, const Tensor& of) {
    const ServerClient::RowsOfVariable asked{.id = id, .rows = of};
    return server.read_rows({&asked, 1}).wait()[0].value;
  };
  const std::vector<ServerClient::RowsOfVariable> asked = {{.id = 9, .rows = numbers({2, 0})},
                                                           {.id = 3, .rows = numbers({1, 1, 0})}};
  const auto read = server.read_rows(asked).wait();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].value.to_vector<std::int32_t>(), (std::vector<std::int32_t>{30, 10}));
  EXPECT_EQ(read[1].value.to_vector<float>(), (std::vector<float>{3, 4, 3, 4, 1, 2}));
  EXPECT_EQ(rows(3, numbers({})).shape(), Shape({0, 2}));
  const auto refused = [&](VariableId id, const Tensor& of, const std::string& text) {
    expect_error<InvalidArgumentError>([&] { rows(id, of); }, text);
  };
  refused(3, numbers({0, 3}),
          "[ParameterServer: variable 'a'] expected row numbers of [0, 3), got 3 at position 1");
  refused(3, numbers({-1}), "expected row numbers of [0, 3), got -1 at position 0");
  refused(10, numbers({0}), "expected row numbers of [0, 0), got 0 at position 0");
  refused(3, constant({1}), "expected row numbers of int64 and one axis, got (1,) of int32");
  expect_error<NotFoundError>([&] { rows(4, numbers({0})); }, "there is no variable 4 here");
}

TEST_F(ParameterServer, ErrorsKeepTheirTypes) {
  ServerClient server = client();
  const VariableId missing = 4;
  expect_error<NotFoundError>(
      [&] {
        server.read({&missing, 1}).wait();
      },
      "there is no variable 4 here");
  const ServerClient::NewVariable a{.id = 4, .name = "a", .value = zeros({2})};
  server.create({&a, 1}).wait();
  expect_error<InvalidArgumentError>(
      [&] { server.assign(4, zeros({3})).wait(); },
      "expected a value of shape (2,) and dtype float32 for variable 'a', got (3,)");
  expect_error<NotFoundError>(
      [&] { server.apply({.function = 1, .updates = {{.index = 7}}}).wait(); },
      "update 7 of function 1 is not known here");
}

// The calls are parsed from untrusted bytes.
TEST_F(ParameterServer, DamagedCallsAreRefused) {
  const auto raw = channel();
  const auto call = [&](const char* method, rpc::Message message) {
    raw->call(method, std::move(message), {.limit = 20s});
  };
  for (const char* method : {kCreate, kRead, kReadRows, kAssign, kRemove, kAddUpdates,
                             kRemoveUpdates, kApply, kCommit, kClose})
    expect_error<DataLossError>([&] { call(method, {.header = "\xff\xff\xff"}); },
                                "is truncated or corrupt");
  rpc::Message message;
  proto::AssignRequest header;
  *header.mutable_spec() = attach(zeros({4}), message);
  header.mutable_spec()->set_sizes(0, 5);
  message.header = header.SerializeAsString();
  expect_error<DataLossError>(
      [&] { call(kAssign, message); },
      "expected 20 bytes for a tensor of shape (5,) and dtype float32, got 16");
  header.mutable_spec()->set_sizes(0, -1);
  message.header = header.SerializeAsString();
  expect_error<DataLossError>([&] { call(kAssign, message); }, "a tensor of size -1");
  header.mutable_spec()->set_dtype(99);
  header.mutable_spec()->set_sizes(0, 4);
  message.header = header.SerializeAsString();
  expect_error<DataLossError>([&] { call(kAssign, message); }, "unknown dtype 99");
  expect_error<DataLossError>([&] { call(kAssign, message_of(proto::AssignRequest())); },
                              "expected more than 0 attachments");
}

TEST_F(ParameterServer, AppliesUpdatesOfAClosureOnce) {
  ServerClient server = client();
  const ServerClient::NewVariable v{.id = 3, .name = "v", .value = zeros({2})};
  server.create({&v, 1}).wait();
  const proto::Part part = assign_add(2);
  const std::pair<std::uint32_t, const proto::Part*> indexed{0, &part};
  server.add_updates(0, {&indexed, 1}).wait();
  const auto repeated = [&](std::uint64_t closure, std::uint64_t finished) {
    return server
        .apply({.closure = closure,
                .finished = testing::finished_below(finished),
                .updates = {{.index = 0, .inputs = {ones({2})}}}})
        .wait()
        .updates[0]
        .repeated;
  };
  EXPECT_FALSE(repeated(7, 0));
  EXPECT_TRUE(repeated(7, 0));
  EXPECT_FALSE(repeated(8, 8));
  EXPECT_EQ(store.read(3).value.to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(store.num_remembered(), 1u);
}

// As a server that continues from a snapshot of the time before the function was added.
TEST_F(ParameterServer, GetsUpdatesThatItDoesNotKnowFromTheWorker) {
  ServerClient server = client();
  const ServerClient::NewVariable v{.id = 3, .name = "v", .value = zeros({2})};
  server.create({&v, 1}).wait();
  const proto::Part part = assign_add(2);
  const auto updates = [](std::uint64_t function) {
    return UpdateCalls::Updates{
        .function = function,
        .closure = 7,
        .updates = {{.index = 0, .inputs = {ones({2})}}, {.index = 1, .inputs = {ones({2})}}}};
  };
  const ServerClient::Parts parts = {{0, &part}, {1, &part}};
  const auto wanted = [] { return false; };
  for (int i = 0; i < 2; ++i)
    for (const auto& applied : server.apply(updates(0), wanted, parts).wait().updates)
      EXPECT_EQ(applied.repeated, i == 1);
  EXPECT_EQ(store.read(3).version, 2u);
  EXPECT_EQ(store.num_updates(), 2u);
  const UpdateCalls::Commit commit{
      .function = 1, .closure = 7, .indices = {0, 1}, .contributions = {{7, 1}}};
  EXPECT_EQ(server.commit(commit, {}, {}).wait().step.missing, (std::vector<std::uint64_t>{7}));
  server.stage(updates(1), 1, wanted, parts).wait();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(server.commit(commit, {}, {}).wait().step.numbers,
              (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(store.read(3).version, 4u);
}

// The server is replaced while calls are under way: none is lost and none is applied twice.
TEST_F(ParameterServer, CallsAreRepeatedWhenTheConnectionIsLost) {
  constexpr std::uint64_t kClosures = 300;
  ServerClient server = client();
  const ServerClient::NewVariable v{.id = 3, .name = "v", .value = zeros({1000})};
  server.create({&v, 1}).wait();
  const proto::Part part = assign_add(1000);
  const std::pair<std::uint32_t, const proto::Part*> indexed{0, &part};
  server.add_updates(0, {&indexed, 1}).wait();
  std::atomic<std::uint64_t> finished = 0;
  std::vector<std::thread> workers;
  for (std::uint64_t worker = 0; worker < 2; ++worker)
    workers.emplace_back([&, worker] {
      for (std::uint64_t closure = worker; closure < kClosures; closure += 2) {
        server.apply({.closure = closure, .updates = {{.index = 0, .inputs = {ones({1000})}}}})
            .wait();
        ++finished;
      }
    });
  for (const std::uint64_t at : {50, 120, 200}) {
    while (finished < at) std::this_thread::sleep_for(1ms);
    const std::uint16_t port = server_->port();
    server_->stop(0ms);
    server_.reset();
    start(port);
  }
  for (std::thread& worker : workers) worker.join();
  const ParameterStore::Read read = store.read(3);
  EXPECT_EQ(read.version, kClosures);
  EXPECT_EQ(read.value.to_vector<float>()[999], static_cast<float>(kClosures));
}

TEST_F(ParameterServer, MissingServerIsAnErrorAfterTheLimit) {
  ServerClient server = client(300ms);
  server_->stop(0ms);
  server_.reset();
  const VariableId id = 3;
  const auto start = std::chrono::steady_clock::now();
  try {
    server.read({&id, 1}).wait();
    ADD_FAILURE() << "expected an error";
  } catch (const rpc::PeerUnavailableError& error) {  // not that it was late
    EXPECT_NE(std::string(error.what()).find("ps:0"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

}  // namespace
}  // namespace tandem::ps::server_test
