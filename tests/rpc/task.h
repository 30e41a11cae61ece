// Servers and channels of a job with one server.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rpc/grpc/grpc_transport.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/waiting.h"

namespace tandem::rpc::testing {

using std::chrono::milliseconds;
using tandem::testing::error_of;
using tandem::testing::eventually;
using tandem::testing::expect_parts;

inline constexpr milliseconds kLong = tandem::testing::kPatience;
inline const std::string kToken = "the token of this job";

class Rpc : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(has_grpc(), "grpc"); }
};

inline Attachment attachment_of(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> all(*owner);
  return {std::move(owner), all};
}

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline Message echo(const CallContext&, Message request) { return request; }
inline Message hang(const CallContext& context, Message) {
  eventually([&] { return context.cancelled(); });
  throw AbortedError("the call was cancelled");
}

// A server that has started: "echo" returns the request, "hang" runs until it is cancelled.
inline std::unique_ptr<Server> serve(
    ServerOptions options = {}, const std::vector<std::pair<std::string, Handler>>& more = {}) {
  if (options.token.empty()) options.token = kToken;
  auto server = make_grpc_server(std::move(options));
  server->handle("echo", echo);
  server->handle("hang", hang);
  for (const auto& [method, handler] : more) server->handle(method, handler);
  server->start();
  return server;
}

inline ChannelOptions to_port(std::uint16_t port) {
  return {.host = "127.0.0.1",
          .port = port,
          .task = "/job:ps/task:0",
          .caller = "/job:worker/task:3",
          .token = kToken};
}
inline std::unique_ptr<Channel> connect(const Server& server) {
  return make_grpc_channel(to_port(server.port()));
}

enum class Transport { kTcp, kUnix };

// Tests that hold over every transport. Servers at Unix sockets have numbers in place of ports.
class RpcOver : public Rpc, public ::testing::WithParamInterface<Transport> {
 protected:
  static ServerOptions at_port(std::uint16_t port) {
    ServerOptions options{.port = port};
    if (GetParam() == Transport::kUnix) options.unix_path = path(port);
    return options;
  }
  std::unique_ptr<Server> serve(ServerOptions options = {},
                                const std::vector<std::pair<std::string, Handler>>& more = {}) {
    const std::uint16_t number = ++servers_;
    if (GetParam() == Transport::kUnix) options.unix_path = path(number);
    auto server = testing::serve(std::move(options), more);
    ports_[server.get()] = GetParam() == Transport::kUnix ? number : server->port();
    return server;
  }
  ChannelOptions to_server(const Server& server) const { return to_port(ports_.at(&server)); }
  static ChannelOptions to_port(std::uint16_t port) {
    ChannelOptions options = testing::to_port(port);
    if (GetParam() == Transport::kUnix) options.unix_path = path(port);
    return options;
  }
  static std::string address(std::uint16_t port) {
    return GetParam() == Transport::kUnix ? "unix:" + path(port)
                                          : fmt::format("127.0.0.1:{}", port);
  }
  std::string address(const Server& server) const { return address(ports_.at(&server)); }
  // A channel that has reached its server, which has the method "echo".
  static std::unique_ptr<Channel> connect(const ChannelOptions& options) {
    auto channel = make_grpc_channel(options);
    channel->call("echo", {}, {.limit = kLong, .wait_for_server = true});
    return channel;
  }
  std::unique_ptr<Channel> connect(const Server& server) const {
    return connect(to_server(server));
  }

 private:
  static std::string path(std::uint16_t port) {
    static const tandem::testing::TemporaryDirectory folder;
    return (folder / std::to_string(port)).string();
  }

  std::uint16_t servers_ = 0;
  std::map<const Server*, std::uint16_t> ports_;
};

inline std::string name_of(const ::testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kTcp ? "Tcp" : "Unix";
}
#define TANDEM_OVER_ALL_TRANSPORTS(suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(Over, suite, ::testing::Values(Transport::kTcp, Transport::kUnix), \
                           name_of)

inline std::string echo_header(Channel& channel, const std::string& header) {
  return channel.call("echo", {.header = header}, {.limit = kLong}).header;
}

}  // namespace tandem::rpc::testing
