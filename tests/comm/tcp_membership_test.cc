// A rank joins at the moment at which rank 0 aborts.
#include "comm/rendezvous/tcp_membership.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/wire.h"
#include "support/errors.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::tcp_membership_test {
namespace {

using namespace std::chrono_literals;

Clock::time_point soon() { return Clock::now() + testing::kPatience; }

const WireMessage kAlive = {.type = MessageType::kAlive, .number = 1, .value = "1"};
const WireMessage kAborted = {
    .type = MessageType::kFailed, .number = 1, .value = "rank 0 aborted: rank 1 did not join"};

// A rank 0 that runs a script of answers. It disconnects when the script returns false.
class ScriptedServer {
 public:
  using Send = std::function<void(const WireMessage&)>;
  using Script = std::function<bool(const WireMessage&, const Send&)>;

  explicit ScriptedServer(Script script)
      : listener_(listen_on({"127.0.0.1", 0})),
        thread_([this, script = std::move(script)] { serve(script); }) {}

  ServerConnection connect() const {
    return ServerConnection({{"127.0.0.1", port_of(listener_)}, ""}, soon());
  }

 private:
  void serve(const Script& script) {
    ASSERT_TRUE(wait_readable(listener_, soon()));
    const Socket peer(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK));
    const std::string nonce = random_bytes(kNonceBytes);
    send_all(peer, std::string(kGreeting) + nonce, soon());
    std::string answer(kClientBytes, '\0');
    receive_exactly(peer, answer.data(), answer.size(), soon());
    send_all(peer, judge("", nonce, answer), soon());
    const Send send = [&](const WireMessage& message) { send_all(peer, encode(message), soon()); };
    FrameReader reader;
    while (true) {
      while (const auto message = reader.next())
        if (!script(*message, send)) return;
      ASSERT_TRUE(wait_readable(peer, soon()));
      reader.append(receive_some(peer));
    }
  }

  Socket listener_;
  std::jthread thread_;
};

std::string error_of_joining(const ScriptedServer::Script& script) {
  const ScriptedServer server(script);
  return testing::any_error_of([&] {
    TcpMembership(server.connect(), {.rank = 2, .size = 3, .heartbeat = 50ms}, TimeLimit(1s));
  });
}

TEST(Joining, NamesMissingRanksIfRankZeroEndsBeforeTheReport) {
  EXPECT_EQ(error_of_joining([](const WireMessage& message, const auto& send) {
              if (message.type == MessageType::kReport) return false;
              send(kAlive);
              return true;
            }),
            "DeadlineExceededError: [rendezvous] rank 1 of 3 did not join within 1000 ms");
}

TEST(Joining, NamesMissingRanksFromTheReportOfRankZero) {
  EXPECT_EQ(error_of_joining([](const WireMessage& message, const auto& send) {
              const bool report = message.type == MessageType::kReport;
              send(report ? kAborted : kAlive);
              return !report;
            }),
            "DeadlineExceededError: [rendezvous] rank 1 of 3 did not join within 1000 ms");
}

TEST(Joining, ReadsTheLastMessageOfRankZero) {
  EXPECT_EQ(error_of_joining([](const WireMessage& message, const auto& send) {
              send(kAlive);
              if (message.type == MessageType::kJoin) return true;
              send(kAborted);
              return false;
            }),
            "AbortedError: [membership] rank 0 aborted: rank 1 did not join");
}

TEST(Joining, ReportsThatRankZeroIsGone) {
  const std::string error = error_of_joining([](const WireMessage& message, const auto& send) {
    send(kAlive);
    return message.type == MessageType::kJoin;
  });
  EXPECT_EQ(error.find("UnavailableError: [rendezvous] rank 0, which hosts the job, is gone: "), 0u)
      << error;
}

}  // namespace
}  // namespace tandem::tcp_membership_test
