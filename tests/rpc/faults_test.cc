// Servers that die or do not answer, and peers that are not of the job.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "comm/rendezvous/socket.h"
#include "rpc/task.h"
#include "support/processes.h"

namespace tandem::rpc::faults_test {
namespace {

using namespace testing;
using Faults = Rpc;
class FaultsOver : public RpcOver {};
TANDEM_OVER_ALL_TRANSPORTS(FaultsOver);
using tandem::testing::Arrivals;
using tandem::testing::ChildProcess;

// A process with a server, once `turn` have arrived.
ChildProcess serve_in_process(const ServerOptions& options, const Arrivals& arrivals, int turn) {
  return ChildProcess([=] {
    arrivals.wait_for(turn);
    const auto server = testing::serve(options);
    eventually([] { return false; });
    return "";
  });
}

TEST_P(FaultsOver, AChannelHealsAfterItsServerWasKilled) {
  const std::uint16_t port = tandem::testing::free_port();
  const Arrivals arrivals;
  const ChildProcess first = serve_in_process(at_port(port), arrivals, 0);
  const ChildProcess second = serve_in_process(at_port(port), arrivals, 1);
  const auto channel = connect(to_port(port));
  const auto running = channel->start("hang", {}, {.limit = kLong});
  echo_header(*channel, "");  // the other has been sent before
  first.kill(SIGKILL);
  const std::string where = fmt::format(
      "[rpc] call of 'hang' on task /job:ps/task:0 ({}): the server cannot be reached, or the "
      "connection was lost: ",
      address(port));
  EXPECT_EQ(error_of<PeerUnavailableError>([&] { running->wait(); }).find(where), 0u);
  expect_parts(error_of<PeerUnavailableError>([&] { echo_header(*channel, ""); }),
               {"call of 'echo' on task /job:ps/task:0", "cannot be reached"});
  arrivals.arrive();
  // Without waiting for the server, a call succeeds soon after it listens again.
  const auto before = Clock::now();
  EXPECT_TRUE(eventually([&] {
    return error_of<PeerUnavailableError>([&] { echo_header(*channel, ""); }) == "no error";
  }));
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(30));
  const auto bytes = random_bytes(1 << 20, 1);
  EXPECT_TRUE(same_bytes(
      channel->call("echo", {"", {attachment_of(bytes)}}, {.limit = kLong}).attachments.at(0).bytes,
      bytes));
}

TEST_F(Faults, AServerThatDoesNotListenYet) {
  const std::uint16_t port = tandem::testing::free_port();
  const auto channel = make_grpc_channel(to_port(port));
  expect_parts(error_of<PeerUnavailableError>([&] { echo_header(*channel, ""); }),
               {"cannot be reached"});
  expect_parts(error_of<CallDeadlineError>([&] {
                 channel->call("echo", {}, {.limit = milliseconds(100), .wait_for_server = true});
               }),
               {"did not end within 100 ms"});
  const auto waiting = channel->start("echo", {"a"}, {.limit = kLong, .wait_for_server = true});
  const auto server = serve({.port = port});
  EXPECT_EQ(waiting->wait().header, "a");
}

// Models a host that died or is cut off.
TEST_P(FaultsOver, AStoppedServerIsNoticedWithinTheLimitOfSilence) {
  const std::uint16_t port = tandem::testing::free_port();
  const ChildProcess server = serve_in_process(at_port(port), {}, 0);
  ChannelOptions options = to_port(port);
  options.silence_limit = milliseconds(1000);
  const auto channel = connect(options);
  const auto running = channel->start("hang", {}, {.limit = kLong});
  echo_header(*channel, "");
  server.kill(SIGSTOP);
  const auto before = Clock::now();
  expect_parts(error_of<PeerUnavailableError>([&] { running->wait(); }),
               {"the connection was lost"});
  EXPECT_LT(Clock::now() - before, kLong / 4);
}

// HTTP/2 without the job's token: the server answers with its refusal.
TEST_F(Faults, ACallWithoutATokenIsRefused) {
  std::atomic<int> handled = 0;
  const auto server = serve({}, {{"count", [&](const CallContext&, Message request) {
                                    ++handled;
                                    return request;
                                  }}});
  std::string headers;
  const auto add = [&](const std::string& name, const std::string& value) {
    headers += '\0';  // a literal without an index
    headers += static_cast<char>(name.size());
    headers += name;
    headers += static_cast<char>(value.size());
    headers += value;
  };
  add(":method", "POST");
  add(":scheme", "http");
  add(":path", "/tandem.Rpc/count");
  add(":authority", "server");
  add("te", "trailers");
  add("content-type", "application/grpc");
  const auto frame = [](char type, char flags, char stream, const std::string& content) {
    return std::string{0, 0, static_cast<char>(content.size()), type, flags, 0, 0, 0, stream} +
           content;
  };
  const Socket socket = connect_to({"127.0.0.1", server->port()}, TimeLimit(kLong).end);
  send_all(socket,
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "") + frame(1, 4, 1, headers) +
               frame(0, 1, 1, std::string(5, '\0')),
           TimeLimit(kLong).end);
  std::string answer;
  EXPECT_TRUE(eventually([&] {
    answer += receive_some(socket);
    return answer.find("the token is not that of this job") != std::string::npos;
  }));
  EXPECT_EQ(handled, 0);
}

// gRPC accepts connections as long as there are any, and answers them after that: while strangers
// come without a pause, a new connection of the job may not get through within its ten seconds, and
// has to be tried again. They may all be open at once, on both sides in this process, which keeps
// descriptors: without one, gRPC closes its listener (AListenerThatDiedIsNoticed).
TEST_F(Faults, StrangersDoNotDisturbCalls) {
  rlimit descriptors = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  descriptors.rlim_cur = descriptors.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  constexpr rlim_t kOpen = 300, kOthers = 200;
  ASSERT_GE(descriptors.rlim_cur, kOpen + kOthers + 500);
  const rlim_t all = std::min<rlim_t>(1500, descriptors.rlim_cur - kOpen - kOthers);
  const auto server = serve();
  const auto channel = connect(*server);
  echo_header(*channel, "connected before they come");
  std::jthread strangers([&](const std::stop_token& ended) {
    std::mt19937 random(7);
    std::vector<Socket> open;
    for (rlim_t i = 0; i < all && !ended.stop_requested(); ++i) {
      Socket socket = connect_to({"127.0.0.1", server->port()}, TimeLimit(kLong).end);
      std::string garbage = random() % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "";
      for (std::size_t size = random() % 2000; garbage.size() < size;)
        garbage += static_cast<char>(random());
      // A server may close the connection before all has arrived.
      send(socket.descriptor(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
      if (open.size() < kOpen)
        open.push_back(std::move(socket));
      else
        open[random() % open.size()] = std::move(socket);
    }
    eventually([&] { return ended.stop_requested(); });  // kOpen of them stay
  });
  const auto bytes = random_bytes(100'000, 2);
  for (int i = 0; i < 300; ++i) {
    const Message reply = channel->call("echo", {"", {attachment_of(bytes)}}, {.limit = kLong});
    EXPECT_TRUE(same_bytes(reply.attachments.at(0).bytes, bytes));
  }
  const auto later = connect(*server);
  EXPECT_EQ(later->call("echo", {"new"}, {.limit = kLong, .wait_for_server = true}).header, "new");
}

// A connection that comes when this process has no descriptor left closes gRPC's listener.
TEST_F(Faults, AListenerThatDiedIsNoticed) {
  const std::uint16_t port = tandem::testing::free_port();
  const Arrivals arrivals;
  const ChildProcess stranger([=] {
    arrivals.wait_for(1);
    const Socket socket = connect_to({"127.0.0.1", port}, TimeLimit(kLong).end);
    eventually([] { return false; });
    return "";
  });
  const auto server = serve({.port = port, .silence_limit = milliseconds(400)});
  server->check_listening();
  // A sanitizer needs descriptors when it sees objects of a class for the first time.
  error_of<ResourceExhaustedError>([] { throw ResourceExhaustedError("any"); });
  error_of<UnavailableError>([] { throw UnavailableError("any"); });
  std::vector<Socket> all;
  for (int next = 0; next >= 0;) {
    next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (next >= 0) all.emplace_back(next);
  }
  server->check_listening();  // cannot tell
  arrivals.arrive();
  const std::string lost = fmt::format("[rpc] the server does not listen on 127.0.0.1:{}", port);
  EXPECT_TRUE(eventually([&] {
    all.pop_back();
    const std::string error = error_of<UnavailableError>([&] { server->check_listening(); });
    return error.starts_with(lost);
  }));
}

TEST_F(Faults, AnEndingProcessNeedNotCloseAnything) {
  EXPECT_EXIT(
      {
        static auto* const server = serve().release();  // static: not leaks of the sanitizer
        static auto* const channel = connect(*server).release();
        static auto* const call = channel->start("hang", {}, {.limit = kLong}).release();
        echo_header(*channel, "");
        std::exit(call->done() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(Faults, AForkedProcessGetsAnError) {
  const auto server = serve();
  const auto channel = connect(*server);
  echo_header(*channel, "");
  const std::string expected =
      "FailedPreconditionError: [rpc] this process was forked after its parent had used gRPC";
  ChildProcess call([&] { return echo_header(*channel, ""); });
  EXPECT_EQ(call.result().find(expected), 0u);
  ChildProcess another([&] {
    connect(*server);
    return "";
  });
  EXPECT_EQ(another.result().find(expected), 0u);
  EXPECT_EQ(echo_header(*channel, "parent"), "parent");
}

}  // namespace
}  // namespace tandem::rpc::faults_test
