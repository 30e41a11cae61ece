// Servers and channels of a job with one server.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "rpc/grpc/grpc_transport.h"
#include "support/errors.h"
#include "support/expects.h"
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

// The sockets of this process that are bound to addresses of Unix servers, and are connected.
inline int unix_connections() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  int count = 0;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    count += state == "03" && path.starts_with("@tandem-rpc-") && own.contains(inode);
  }
  return count;
}

enum class Transport { kGrpc, kUnixSocket };

// Tests that hold over every transport.
class RpcOver : public Rpc, public ::testing::WithParamInterface<Transport> {
 protected:
  static ChannelOptions to_port(std::uint16_t port) {
    ChannelOptions options = testing::to_port(port);
    options.local_transport = GetParam() == Transport::kUnixSocket;
    return options;
  }
  // A channel that uses the transport from its first call on. Its server has method "echo".
  static std::unique_ptr<Channel> connect(const ChannelOptions& options) {
    auto channel = make_grpc_channel(options);
    channel->call("echo", {}, {.limit = kLong, .wait_for_server = true});
    return channel;
  }
  static std::unique_ptr<Channel> connect(const Server& server) {
    auto channel = connect(to_port(server.port()));
    const bool over_socket = GetParam() == Transport::kUnixSocket;
    EXPECT_TRUE(eventually([&] { return unix_connections() > 0 || !over_socket; }));
    EXPECT_TRUE(over_socket || unix_connections() == 0);
    return channel;
  }
};

inline std::string name_of(const ::testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kGrpc ? "Grpc" : "UnixSocket";
}
#define TANDEM_OVER_ALL_TRANSPORTS(suite) \
  INSTANTIATE_TEST_SUITE_P(Over, suite,   \
                           ::testing::Values(Transport::kGrpc, Transport::kUnixSocket), name_of)

inline std::string echo_header(Channel& channel, const std::string& header) {
  return channel.call("echo", {.header = header}, {.limit = kLong}).header;
}

}  // namespace tandem::rpc::testing
