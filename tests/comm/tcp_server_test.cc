// The rendezvous server with misbehaving peers.
#include "comm/rendezvous/tcp_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <random>
#include <thread>

#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/tcp_store.h"
#include "support/errors.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::tcp_server_test {
namespace {

using namespace std::chrono_literals;

Clock::time_point soon() { return Clock::now() + testing::kPatience; }

// A peer that sends raw bytes.
Socket stranger(const TcpServer& server) {
  return connect_to({"127.0.0.1", server.port()}, soon());
}
Socket friendly(const TcpServer& server) {
  Socket socket = stranger(server);
  EXPECT_EQ(greet(socket, "secret", soon()), Greeted::kWelcome);
  return socket;
}
// A connection from another address of this host.
Socket connected_from(const char* source, std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in from = {}, to = {};
  from.sin_family = to.sin_family = AF_INET;
  inet_pton(AF_INET, source, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  to.sin_port = htons(port);
  EXPECT_EQ(bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
  EXPECT_EQ(connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}
// Returns the bytes that the peer still receives until it is disconnected.
std::string last_words(const Socket& socket) {
  std::string words;
  try {
    while (wait_readable(socket, soon())) words += receive_some(socket);
    ADD_FAILURE() << "not dropped";
  } catch (const UnavailableError&) {
  }
  return words;
}

class Server : public ::testing::Test {
 protected:
  void expect_well() {
    TcpStore store({{"127.0.0.1", server_->port()}, "secret"});
    store.set("well", "yes");
    EXPECT_EQ(store.get("well", soon()), "yes");
  }
  void restart(TcpServerOptions options) {
    options.secret = "secret";
    server_.reset();
    server_ = std::make_unique<TcpServer>(options);
  }
  std::unique_ptr<TcpServer> server_ =
      std::make_unique<TcpServer>(TcpServerOptions{.secret = "secret"});
};

TEST_F(Server, SendsOnlyTheGreetingWithoutTheSecret) {
  for (const std::string& answer :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n"),
        std::string(kClientBytes, '\0'), std::string(100'000, '\xff')}) {
    const Socket socket = stranger(*server_);
    send_all(socket, answer, soon());
    const std::string words = last_words(socket);
    // The refusal may be lost after unread data.
    EXPECT_LE(words.size(), kServerBytes + kVerdictBytes);
    EXPECT_TRUE(words.size() <= kServerBytes || words.substr(kServerBytes) == kRefusal);
  }
  expect_well();
}

TEST_F(Server, RefusesAReplayedProof) {
  // One client's answer is of no use to another: the server's nonce is new.
  const std::string nonce = random_bytes(kNonceBytes);
  Socket first = stranger(*server_);
  std::string greeting(kServerBytes, '\0');
  receive_exactly(first, greeting.data(), greeting.size(), soon());
  Socket second = stranger(*server_);
  std::string other(kServerBytes, '\0');
  receive_exactly(second, other.data(), other.size(), soon());
  EXPECT_EQ(greeting.substr(0, kGreeting.size()), kGreeting);
  EXPECT_NE(greeting, other);
}

TEST_F(Server, AWrongTokenIsAClearError) {
  try {
    ServerConnection connection({{"127.0.0.1", server_->port()}, "other"}, soon());
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_EQ(error.what(), "[rendezvous] the job at 127.0.0.1:" + std::to_string(server_->port()) +
                                " has another token, or is another user's: TANDEM_JOB_TOKEN must "
                                "be the same for all ranks of a job");
  }
  expect_well();
}

TEST_F(Server, DropsInvalidMessages) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const Socket socket = friendly(*server_);
    std::string garbage(1 + random() % 300, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    garbage[0] = '\xff';  // an invalid length, so that the connection is closed at once
    if (garbage.size() > 3) garbage[3] = '\xff';
    garbage.resize(std::max<std::size_t>(garbage.size(), 4), '\xff');
    send_all(socket, garbage, soon());
    EXPECT_EQ(last_words(socket), "");
  }
  expect_well();
}

TEST_F(Server, DropsMessagesThatNoClientSends) {
  for (const MessageType type :
       {MessageType::kValue, MessageType::kFailed, MessageType::kFarewell, MessageType::kHeartbeat,
        MessageType::kReport, MessageType::kGoodbye}) {
    const Socket socket = friendly(*server_);
    send_all(socket, encode({.type = type}), soon());
    EXPECT_EQ(last_words(socket), "");
  }
  // A second request before the answer to the first.
  const Socket socket = friendly(*server_);
  send_all(socket, encode({.type = MessageType::kGet, .key = "never"}), soon());
  send_all(socket, encode({.type = MessageType::kGet, .key = "never"}), soon());
  EXPECT_EQ(last_words(socket), "");
  expect_well();
}

TEST_F(Server, SilentPeersAreDroppedAndBlockNoOthers) {
  restart({.greeting_limit = 3s});
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(stranger(*server_));
  expect_well();
  for (const Socket& socket : silent) EXPECT_EQ(last_words(socket).size(), kServerBytes);
}

TEST_F(Server, UnknownPeersDoNotBlockRanks) {
  restart({.greeting_limit = testing::kFarAway});
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(stranger(*server_));
  expect_well();
}

// A peer in its handshake is not displaced: unknown peers of another address are.
TEST_F(Server, UnknownPeersOfOneHostAreDroppedFirst) {
  restart({.greeting_limit = testing::kFarAway});
  const Socket rank = connected_from("127.0.0.2", server_->port());
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(stranger(*server_));
  EXPECT_EQ(greet(rank, "secret", soon()), Greeted::kWelcome);
}

TEST_F(Server, APeerThatDoesNotReadBlocksNoOthers) {
  TcpStore store({{"127.0.0.1", server_->port()}, "secret"});
  store.set("large", std::string(10'000'000, 'x'));
  const Socket deaf = friendly(*server_);
  const std::string request = encode({.type = MessageType::kGet, .key = "large"});
  for (int i = 0; i < 20; ++i) send_all(deaf, request, soon());
  expect_well();
}

TEST_F(Server, MessagesMayComeInPieces) {
  const Socket socket = friendly(*server_);
  const std::string both = encode({.type = MessageType::kAdd, .number = 5, .key = "n"}) +
                           encode({.type = MessageType::kAdd, .number = 6, .key = "n"});
  for (const char c : both) send_all(socket, std::string(1, c), soon());
  FrameReader reader;
  std::vector<std::int64_t> sums;
  while (sums.size() < 2) {
    ASSERT_TRUE(wait_readable(socket, soon()));
    reader.append(receive_some(socket));
    while (const auto message = reader.next()) sums.push_back(message->number);
  }
  EXPECT_EQ(sums, (std::vector<std::int64_t>{5, 11}));
}

TEST_F(Server, ATakenPortIsAClearError) {
  EXPECT_EQ(
      testing::error_of<AlreadyExistsError>([&] { TcpServer second({.port = server_->port()}); }),
      "[rendezvous] The server socket has failed to bind to 127.0.0.1:" +
          std::to_string(server_->port()) +
          " (errno: 98 - Address already in use): another job or program listens there; give this "
          "job another port");
  testing::expect_parts(
      testing::error_of<InvalidArgumentError>([&] { TcpServer elsewhere({.host = "192.0.2.1"}); }),
      {"rank 0 has to run where this address is"});
}

TEST(FindServer, DistinguishesServersFromOtherPeers) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const std::vector<std::uint16_t> ports = {port_of(listener)};
  std::thread talker([&] {
    wait_readable(listener, soon());
    const Socket peer(accept(listener.descriptor(), nullptr, nullptr));
    send_all(peer, "220 mail.example.org ESMTP ready, and more of the same", soon());
    wait_readable(peer, Clock::now() + 2s);
  });
  const std::string what = testing::error_of<DeadlineExceededError>(
      [&] { find_server("127.0.0.1", ports, "", TimeLimit(300ms)); });
  EXPECT_EQ(what.find("[rendezvous] rank 0 is missing: "), 0u) << what;
  // No server responds to the later attempts.
  EXPECT_TRUE(what.find("is not a Tandem rendezvous server") != std::string::npos ||
              what.find("does not answer the handshake") != std::string::npos)
      << what;
  talker.join();
  EXPECT_THROW(find_server("no.such.host.invalid", ports, "", TimeLimit(50ms)),
               DeadlineExceededError);
}

}  // namespace
}  // namespace tandem::tcp_server_test
