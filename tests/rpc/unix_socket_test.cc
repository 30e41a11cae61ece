// Calls over Unix sockets, without gRPC.
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <thread>

#include "rpc/credential.h"
#include "rpc/task.h"
#include "rpc/unix_socket/neighbor.h"
#include "rpc/unix_socket/unix_server.h"

namespace tandem::rpc::unix_socket_test {
namespace {

using namespace testing;

// --- packets and addresses ---

std::string bytes_of(const Packet& packet) {
  std::string bytes = packet_prefix(packet);
  bytes.append(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  return bytes;
}

const std::vector<std::byte> kBytes = random_bytes(100, 1);
const std::vector<Packet> kPackets = {
    {.kind = PacketKind::kHello, .limit = 7, .strings = {"secret", "", "me"}},
    {.kind = PacketKind::kRequest, .call = 1, .limit = 9, .strings = {"echo"}, .bytes = kBytes},
    {.kind = PacketKind::kCancel, .call = 2},
    {.kind = PacketKind::kPing},
    {.kind = PacketKind::kPart, .call = 3, .bytes = kBytes},
    {.kind = PacketKind::kReply, .call = ~std::uint64_t{0}, .bytes = kBytes},
    {.kind = PacketKind::kRefusal, .call = 5, .strings = {"no"}},
    {.kind = PacketKind::kPong}};

TEST(UnixPackets, AreReadAsTheyWereWritten) {
  for (const Packet& packet : kPackets) {
    const std::string bytes = bytes_of(packet);
    const Packet read = parse_packet(std::as_bytes(std::span(bytes)));
    EXPECT_EQ(read.kind, packet.kind);
    EXPECT_EQ(read.call, packet.call);
    EXPECT_EQ(read.limit, packet.limit);
    EXPECT_EQ(read.strings, packet.strings);
    EXPECT_TRUE(same_bytes(read.bytes, packet.bytes));
  }
}

TEST(UnixPackets, ThatAreDamagedAreRefused) {
  for (const Packet& packet : kPackets) {
    const std::string bytes = bytes_of(packet);
    const std::size_t least = bytes.size() - packet.bytes.size();
    for (std::size_t size = 0; size < least; ++size)
      EXPECT_THROW(parse_packet(std::as_bytes(std::span(bytes).first(size))), DataLossError)
          << size;
    if (!packet.bytes.empty()) continue;
    const std::string more = bytes + "x";
    EXPECT_THROW(parse_packet(std::as_bytes(std::span(more))), DataLossError);
  }
  for (const char kind : {'\0', '\x09', '\xff'}) {
    std::string bytes = bytes_of(kPackets[3]);
    bytes[0] = kind;
    expect_parts(error_of<DataLossError>([&] { parse_packet(std::as_bytes(std::span(bytes))); }),
                 {"its kind does not exist"});
  }
}

TEST(UnixAddress, IsReadAsItWasWritten) {
  const UnixAddress address = UnixAddress::make(256);
  const auto read = UnixAddress::parse(address.text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, address.name);
  EXPECT_EQ(read->calls, 256);
  EXPECT_NE(UnixAddress::make(256).name, address.name);
  const std::string& name = address.name;
  for (const std::string& text :
       {std::string(), std::string(name), name + " ", name + " 0", name + " -1", name + " 1x",
        name + " 99999999999", name + "0 1", "x" + name + " 1", std::string("tandem-rpc- 1"),
        "tandem-rpc-" + std::string(32, 'G') + " 1"})
    EXPECT_FALSE(UnixAddress::parse(text)) << text;
}

// --- calls ---

// A server without gRPC, and connections to it.
class UnixSocket : public ::testing::Test {
 protected:
  UnixSocket() { service_.handlers = {{"echo", echo}, {"hang", hang}}; }

  UnixServer& server() {
    if (!threads_) threads_.emplace(service_.options.threads, service_.options.waiting_calls);
    if (!server_) server_.emplace(service_, *threads_);
    return *server_;
  }
  std::shared_ptr<Neighbor> meet(const std::string& token = kToken) {
    auto met = std::make_shared<Neighbor>(testing::to_port(1), credential_of(token));
    met->met(announcement(), server().address());
    return met;
  }
  static std::unique_ptr<Call> start(Neighbor& neighbor, const std::string& method,
                                     Message message = {}, milliseconds limit = kLong) {
    Frame frame{.message = std::move(message)};
    const SharedSender::Sent sent = neighbor.share(frame, limit);
    return neighbor.start(method, frame, sent, {method, "ps:0", "here", limit});
  }
  static std::string echo_header(Neighbor& neighbor, const std::string& header) {
    const auto call = start(neighbor, "echo", {header});
    return call ? call->wait().header : "no call";
  }
  // A connection without a greeting.
  Socket connect_raw() { return connect_to(*UnixAddress::parse(server().address())); }
  std::string hello() const {
    return packet_prefix({.kind = PacketKind::kHello,
                          .limit = 1'000'000,
                          .strings = {service_.credential, "me", announcement()}});
  }
  static bool send_raw(const Socket& socket, const std::string& packet) {
    return send(socket.descriptor(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }
  static bool is_closed(const Socket& socket) {
    return eventually([&] {
      char byte;
      return recv(socket.descriptor(), &byte, 1, MSG_DONTWAIT) == 0;
    });
  }

  Service service_{.options = {}, .credential = credential_of(kToken)};
  std::optional<HandlerThreads> threads_;
  std::optional<UnixServer> server_;
};

TEST_F(UnixSocket, AnswersCalls) {
  const auto neighbor = meet();
  EXPECT_EQ(echo_header(*neighbor, "a"), "a");
  EXPECT_EQ(unix_connections(), 1);
  const auto call = start(*neighbor, "echo", {"b", {attachment_of(random_bytes(1 << 20, 1))}});
  EXPECT_TRUE(eventually([&] { return call->done(); }));
  EXPECT_TRUE(same_bytes(call->wait().attachments[0].bytes, random_bytes(1 << 20, 1)));
  expect_parts(error_of<FailedPreconditionError>([&] { call->wait(); }),
               {"call of 'echo' on task ps:0 (here)", "was taken before"});
}

TEST_F(UnixSocket, ClosesTheConnectionOfATaskWithAnotherToken) {
  std::atomic<int> handled = 0;
  service_.handlers["count"] = [&](const CallContext&, Message request) {
    ++handled;
    return request;
  };
  const auto stranger = meet("another token");
  // The packets may arrive before the server has closed the connection.
  for (int i = 0; i < 3; ++i)
    if (const auto call = start(*stranger, "count"))
      expect_parts(error_of<PeerUnavailableError>([&] { call->wait(); }), {"connection was lost"});
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(echo_header(*meet(), "a"), "a");
}

TEST_F(UnixSocket, ClosesConnectionsWithWrongPackets) {
  const auto packet = [](PacketKind kind) {
    return bytes_of(*std::find_if(kPackets.begin(), kPackets.end(),
                                  [&](const Packet& each) { return each.kind == kind; }));
  };
  const std::vector<std::vector<std::string>> conversations = {
      {"garbage"},
      {packet(PacketKind::kHello)},                // the wrong credential
      {packet(PacketKind::kPing)},                 // before the greeting
      {packet(PacketKind::kRequest)},              // before the greeting
      {hello(), hello()},                          // greets twice
      {hello(), packet(PacketKind::kReply)},       // a server's
      {hello(), packet(PacketKind::kRequest)},     // without a frame
      {hello(), std::string(100'000, 'x')},        // too large
      {hello(), packet(PacketKind::kPing), "x"}};  // garbage later
  for (const auto& packets : conversations) {
    const Socket socket = connect_raw();
    ASSERT_TRUE(socket.is_open());
    for (const std::string& each : packets) send_raw(socket, each);
    EXPECT_TRUE(eventually([&] {
      char bytes[256];
      return recv(socket.descriptor(), bytes, sizeof(bytes), MSG_DONTWAIT) == 0;
    })) << packets.back();
  }
  EXPECT_EQ(echo_header(*meet(), "a"), "a");
}

TEST_F(UnixSocket, StrangersDoNotDisturbCalls) {
  const auto neighbor = meet();
  std::mt19937 random(7);
  std::vector<Socket> open;
  for (int i = 0; i < 500; ++i) {
    Socket socket;
    eventually([&] { return (socket = connect_raw()).is_open(); });  // not while too many wait
    std::string garbage(random() % 500, '\0');
    for (char& each : garbage) each = static_cast<char>(random());
    if (i % 3 == 0 && !garbage.empty()) send_raw(socket, garbage);
    open.push_back(std::move(socket));
    if (i % 10 == 0) {
      EXPECT_EQ(echo_header(*neighbor, "a"), "a");
    }
  }
  EXPECT_TRUE(eventually([&] { return unix_connections() <= 66; })) << unix_connections();
  EXPECT_EQ(echo_header(*neighbor, "a"), "a");
  EXPECT_EQ(echo_header(*meet(), "new"), "new");
}

TEST_F(UnixSocket, ThreadsThatWaitReadForEachOther) {
  std::atomic<int> released = 0;
  service_.options.threads = 4;
  service_.handlers["turn"] = [&](const CallContext&, Message request) {
    eventually([&] { return released >= std::stoi(request.header); });
    return request;
  };
  const auto neighbor = meet();
  std::atomic<int> ended = 0;
  std::vector<std::jthread> threads;
  std::vector<std::unique_ptr<Call>> calls;
  // The first to wait, which reads, ends last; then the first ends first.
  for (const auto& turns : {std::vector<int>{3, 1, 2}, std::vector<int>{1, 2, 3}}) {
    released = ended = 0;
    for (const int turn : turns) {
      calls.push_back(start(*neighbor, "turn", {std::to_string(turn)}));
      threads.emplace_back([&, turn, call = calls.back().get()] {
        EXPECT_EQ(call->wait().header, std::to_string(turn));
        EXPECT_EQ(++ended, turn);
      });
    }
    for (int turn = 1; turn <= 3; ++turn) {
      released = turn;
      EXPECT_TRUE(eventually([&] { return ended == turn; }));
    }
  }
}

TEST_F(UnixSocket, CarriesOnlyAsManyCallsAsTheServerAllows) {
  service_.options.calls_per_connection = 2;
  const auto neighbor = meet();
  auto first = start(*neighbor, "hang"), second = start(*neighbor, "hang");
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(start(*neighbor, "echo"));
  first.reset();
  EXPECT_EQ(echo_header(*neighbor, "a"), "a");
}

TEST_F(UnixSocket, DoesNotCarryRequestsThatAreLargerThanAPacket) {
  const auto neighbor = meet();
  Message request;
  for (int i = 0; i < 2000; ++i) request.attachments.push_back(attachment_of(random_bytes(60, 1)));
  EXPECT_FALSE(start(*neighbor, "echo", request));
  request.attachments.resize(1000);
  const auto call = start(*neighbor, "echo", request);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->wait().attachments.size(), 1000u);
}

TEST_F(UnixSocket, RepliesThatFindNoRoomAreLimited) {
  service_.options.memory_limit = 1 << 20;
  std::atomic<int> made = 0;
  service_.handlers["make"] = [&](const CallContext&, Message) {
    ++made;
    Message reply;
    for (int i = 0; i < 800; ++i) reply.attachments.push_back(attachment_of(random_bytes(1000, 1)));
    return reply;
  };
  const auto neighbor = meet();
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(start(*neighbor, "make"));
  EXPECT_TRUE(eventually([&] { return made == 4; }));
  // Nothing is read before all handlers have returned.
  server().begin_to_stop(Clock::now() + kLong);
  server().wait();
  int arrived = 0, refused = 0;
  for (const auto& call : calls) {
    try {
      arrived += call->wait().attachments.size() == 800;
    } catch (const ResourceExhaustedError& error) {
      expect_parts(error.what(), {"no memory for a call of 'make'"});
      ++refused;
    }
  }
  EXPECT_GE(arrived, 1);
  EXPECT_GE(refused, 1);
}

TEST_F(UnixSocket, RepliesOfLostConnectionsNeedNoRoom) {
  service_.options.memory_limit = 900'000;
  service_.handlers["make"] = [](const CallContext&, Message) {
    Message reply;
    for (int i = 0; i < 800; ++i) reply.attachments.push_back(attachment_of(random_bytes(1000, 1)));
    return reply;
  };
  const auto neighbor = meet();
  const auto outcome = [&] {
    return tandem::testing::any_error_of([&] { start(*neighbor, "make")->wait(); });
  };
  const Socket reads_nothing = connect_raw();
  std::string request = packet_prefix(
      {.kind = PacketKind::kRequest, .call = 1, .limit = 1'000'000, .strings = {"make"}});
  append_frame(request, {});
  send_raw(reads_nothing, hello());
  send_raw(reads_nothing, request);
  EXPECT_TRUE(eventually([&] {
    char byte;
    return recv(reads_nothing.descriptor(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }));
  int refused = 0;  // in a row: its handler has returned, and the reply waits for room
  EXPECT_TRUE(eventually([&] {
    refused = outcome().starts_with("ResourceExhaustedError") ? refused + 1 : 0;
    return refused == 20;
  }));
  send_raw(reads_nothing, "garbage");  // so the server closes the connection
  EXPECT_TRUE(eventually([&] { return outcome() == "no error"; }));
}

TEST_F(UnixSocket, AStoppedServerIsNoLongerUsed) {
  const auto neighbor = meet();
  EXPECT_EQ(echo_header(*neighbor, "a"), "a");
  server_.reset();
  EXPECT_TRUE(eventually([&] { return start(*neighbor, "echo") == nullptr; }));
  EXPECT_TRUE(eventually([&] { return unix_connections() == 0; }));
  neighbor->met(announcement(), server().address());
  EXPECT_EQ(echo_header(*neighbor, "b"), "b");
}

// A server that accepts connections, and reads nothing.
class SilentServer : public ::testing::Test {
 protected:
  std::shared_ptr<Connection> connect(milliseconds silence) const {
    return Connection::open(address_, {.credential = "c",
                                       .caller = "me",
                                       .largest_reply = 1000,
                                       .silence_limit = silence,
                                       .areas = std::make_shared<PeerAreas>()});
  }
  const UnixAddress address_ = UnixAddress::make(1000);
  const Socket listener_ = listen_on(address_);
};

TEST_F(SilentServer, IsLostAfterTheLimitOfSilence) {
  const auto connection = connect(milliseconds(200));
  const auto exchange = connection->start("m", {}, kLong);
  EXPECT_TRUE(connection->wait(*exchange, Clock::now() + kLong));
  EXPECT_EQ(exchange->end, Exchange::End::kLost);
  EXPECT_EQ(exchange->why, "no answer within 200 ms");
  EXPECT_TRUE(connection->is_lost());
  EXPECT_FALSE(connection->start("m", {}, kLong));
}

TEST_F(SilentServer, CallsEndAtTheirLimitsAndWhenTheyAreCancelled) {
  const auto connection = connect(kLong);
  const auto late = connection->start("m", {}, kLong), other = connection->start("m", {}, kLong);
  EXPECT_FALSE(connection->wait(*late, Clock::now() + milliseconds(10)));
  std::jthread waits([&] { EXPECT_TRUE(connection->wait(*late, Clock::now() + kLong)); });
  std::jthread waits_too([&] { EXPECT_TRUE(connection->wait(*other, Clock::now() + kLong)); });
  std::this_thread::sleep_for(milliseconds(20));  // most likely one of them reads now
  for (const auto& each : {late, other}) {
    EXPECT_TRUE(connection->cancel(*each));
    EXPECT_FALSE(connection->cancel(*each));
  }
  waits.join();
  waits_too.join();
  EXPECT_EQ(other->end, Exchange::End::kCancelled);
}

TEST_F(SilentServer, RequestsThatFindNoRoomAreNotSent) {
  const auto connection = connect(kLong);
  Message message{.header = std::string(50'000, 'x')};
  std::vector<std::shared_ptr<Exchange>> sent;
  while (auto exchange = connection->start("m", {.message = message}, kLong))
    sent.push_back(std::move(exchange));
  EXPECT_GT(sent.size(), 1u);
  EXPECT_LT(sent.size(), 100u);
  EXPECT_FALSE(connection->is_lost());
  for (const auto& each : sent) EXPECT_FALSE(connection->has_ended(*each));
  EXPECT_TRUE(connection->cancel(*sent[0]));  // the server does not even read that
  EXPECT_EQ(sent[0]->end, Exchange::End::kCancelled);
  EXPECT_TRUE(connection->is_lost());
  EXPECT_EQ(sent[1]->end, Exchange::End::kLost);
}

}  // namespace
}  // namespace tandem::rpc::unix_socket_test
