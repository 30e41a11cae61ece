// Calls that succeed, and the errors of handlers.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "rpc/task.h"

namespace tandem::rpc::calls_test {
namespace {

using namespace testing;
class Calls : public RpcOver {};
TANDEM_OVER_ALL_TRANSPORTS(Calls);
using RpcOptions = Rpc;

TEST_P(Calls, BigMessagesAreEqualInBothDirections) {
  const auto server = serve();
  const auto channel = connect(*server);
  const auto large = random_bytes(std::size_t{64} << 20, 1), odd = random_bytes(100'003, 2);
  Message request{.header = std::string("a\0b", 3),
                  .attachments = {attachment_of(large), {}, attachment_of(odd)}};
  const Message reply = channel->call("echo", request, {.limit = kLong});
  EXPECT_EQ(reply.header, std::string("a\0b", 3));
  ASSERT_EQ(reply.attachments.size(), 3u);
  EXPECT_TRUE(same_bytes(reply.attachments[0].bytes, large));
  EXPECT_TRUE(reply.attachments[1].bytes.empty());
  EXPECT_TRUE(same_bytes(reply.attachments[2].bytes, odd));
  for (const Attachment& each : reply.attachments)
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(each.bytes.data()) % kAlignment, 0u);
  EXPECT_NE(reply.attachments[0].bytes.data(), request.attachments[0].bytes.data());
}

TEST_P(Calls, ManySmallAttachmentsAreEqualInBothDirections) {
  const auto server = serve();
  const auto channel = connect(*server);
  for (const std::size_t count : {std::size_t{60}, std::size_t{3000}}) {
    Message request;
    for (std::size_t i = 0; i < count; ++i)
      request.attachments.push_back(attachment_of(random_bytes(1000 + i % 7, 1)));
    const Message reply = channel->call("echo", request, {.limit = kLong});
    ASSERT_EQ(reply.attachments.size(), count);
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_TRUE(same_bytes(reply.attachments[i].bytes, random_bytes(1000 + i % 7, 1)));
  }
}

TEST_P(Calls, LargeRepliesOfManyPartsArrive) {
  const auto server =
      serve({}, {{"make", [](const CallContext&, Message request) {
                    Message reply;
                    for (int i = 0; i < std::stoi(request.header); ++i)
                      reply.attachments.push_back(attachment_of(random_bytes(1000, 1)));
                    return reply;
                  }}});
  const auto channel = connect(*server);
  for (const int count : {90, 95, 100, 3000}) {
    const Message reply = channel->call("make", {std::to_string(count)}, {.limit = kLong});
    ASSERT_EQ(reply.attachments.size(), static_cast<std::size_t>(count));
    for (const Attachment& each : reply.attachments)
      EXPECT_TRUE(same_bytes(each.bytes, random_bytes(1000, 1)));
  }
}

TEST_P(Calls, RepliesMayWaitWithoutKeepingTheServerBusy) {
  const auto server = serve({.threads = 2});
  const auto channel = connect(*server);
  std::vector<std::unique_ptr<Call>> calls;
  for (std::uint32_t i = 0; i < 100; ++i)
    calls.push_back(
        channel->start("echo", {"", {attachment_of(random_bytes(50'000, i))}}, {.limit = kLong}));
  const auto other = connect(*server);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(echo_header(*other, "other"), "other");
  for (std::uint32_t i = 0; i < 100; ++i)
    EXPECT_TRUE(same_bytes(calls[i]->wait().attachments[0].bytes, random_bytes(50'000, i)));
}

TEST_P(Calls, AnAttachmentIsReleasedWhenTheCallHasEnded) {
  const auto server = serve();
  const auto channel = connect(*server);
  Attachment sent = attachment_of(random_bytes(1 << 20, 3));
  const std::weak_ptr<const void> owner = sent.owner;
  Message request{.header = "", .attachments = {std::move(sent)}};
  sent = {};
  const Message reply = channel->call("echo", std::move(request), {.limit = kLong});
  EXPECT_TRUE(eventually([&] { return owner.expired(); }));
  EXPECT_TRUE(same_bytes(reply.attachments[0].bytes, random_bytes(1 << 20, 3)));
}

TEST_P(Calls, AReceivedAttachmentOutlivesItsMessageAndTheServer) {
  auto server = serve();
  const auto channel = connect(*server);
  Attachment kept;
  {
    Message reply =
        channel->call("echo", {"", {attachment_of(random_bytes(5000, 4))}}, {.limit = kLong});
    kept = std::move(reply.attachments[0]);
  }
  server.reset();
  EXPECT_TRUE(same_bytes(kept.bytes, random_bytes(5000, 4)));
}

TEST_P(Calls, ThousandsOfSmallOnesFromSeveralThreads) {
  std::atomic<int> served = 0;
  const auto server = serve({.threads = 4}, {{"count", [&](const CallContext&, Message request) {
                                                ++served;
                                                return Message{request.header + "!"};
                                              }}});
  const auto channel = connect(*server);
  constexpr int kThreads = 4, kCalls = 1000;
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kCalls; ++i) {
          const std::string header = std::to_string(t * kCalls + i);
          right += channel->call("count", {header}, {.limit = kLong}).header == header + "!";
        }
      });
  }
  EXPECT_EQ(right, kThreads * kCalls);
  EXPECT_EQ(served, kThreads * kCalls);
}

TEST_P(Calls, AReplyThatHasArrivedIsTakenAfterTheLimit) {
  const auto server = serve();
  const auto channel = connect(*server);
  channel->call("echo", {"first"}, {.limit = kLong});
  const std::chrono::seconds limit(2);
  const auto call = channel->start("echo", {"second"}, {.limit = limit});
  std::this_thread::sleep_for(limit + std::chrono::milliseconds(100));
  EXPECT_EQ(call->wait().header, "second");
}

TEST_P(Calls, SeveralAreInFlight) {
  std::atomic<int> arrived = 0;
  const auto server = serve({.threads = 3}, {{"meet", [&](const CallContext&, Message request) {
                                                ++arrived;
                                                eventually([&] { return arrived == 3; });
                                                return request;
                                              }}});
  const auto channel = connect(*server);
  std::vector<std::unique_ptr<Call>> calls;
  for (const char* name : {"a", "b", "c"})
    calls.push_back(channel->start("meet", {name}, {.limit = kLong}));
  EXPECT_EQ(calls[2]->wait().header, "c");
  EXPECT_EQ(calls[0]->wait().header, "a");
  EXPECT_TRUE(eventually([&] { return calls[1]->done(); }));
  EXPECT_EQ(calls[1]->wait().header, "b");
  expect_parts(error_of<FailedPreconditionError>([&] { calls[1]->wait(); }), {"was taken before"});
}

TEST_P(Calls, HandlersRunOnTheThreadsOfTheServerOnly) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> running = 0, most = 0;
  const auto server = serve({.threads = 2}, {{"work", [&](const CallContext&, Message request) {
                                                const int now = ++running;
                                                const std::lock_guard lock(mutex);
                                                most = std::max<int>(most, now);
                                                threads.insert(std::this_thread::get_id());
                                                --running;
                                                return request;
                                              }}});
  const auto channel = connect(*server);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(channel->start("work", {}, {.limit = kLong}));
  for (const auto& call : calls) call->wait();
  EXPECT_LE(threads.size(), 3u);
  EXPECT_LE(most, 2);
}

TEST_P(Calls, TheHandlerKnowsTheCallerAndTheRemainingTime) {
  const auto server = serve(
      {}, {{"look", [](const CallContext& context, Message) {
              return Message{context.caller() + " " + std::to_string(context.remaining().count()) +
                             " " + (context.cancelled() ? "cancelled" : "alive")};
            }}});
  const std::string header =
      connect(*server)->call("look", {}, {.limit = milliseconds(100'000)}).header;
  EXPECT_EQ(header.find("/job:worker/task:3 "), 0u) << header;
  EXPECT_TRUE(header.ends_with(" alive")) << header;
  const int remaining = std::stoi(header.substr(header.find(' ')));
  EXPECT_GT(remaining, 10'000);
  EXPECT_LE(remaining, 101'000);  // gRPC sends it in whole seconds, rounded up
}

TEST_P(Calls, TandemsErrorsArriveWithTypeAndMessage) {
  const std::string long_text(100'000, 'x');
  const std::vector<std::function<void()>> errors = {[] { throw InvalidArgumentError("a"); },
                                                     [] { throw NotFoundError("b"); },
                                                     [] { throw AlreadyExistsError("c"); },
                                                     [] { throw ResourceExhaustedError("d"); },
                                                     [] { throw FailedPreconditionError("e"); },
                                                     [] { throw OutOfRangeError("f"); },
                                                     [] { throw DeadlineExceededError("g"); },
                                                     [] { throw UnavailableError("h\n\xff"); },
                                                     [] { throw AbortedError("i"); },
                                                     [] { throw DataLossError("j"); },
                                                     [] { throw UnimplementedError("k"); },
                                                     [] { throw RuntimeError("l"); },
                                                     [] { throw InternalError(""); },
                                                     [&] { throw NotFoundError(long_text); }};
  const auto server = serve({}, {{"fail", [&](const CallContext&, Message request) -> Message {
                                    errors[std::stoul(request.header)]();
                                    return {};
                                  }}});
  const auto channel = connect(*server);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const std::string expected = tandem::testing::any_error_of(errors[i]);
    EXPECT_EQ(tandem::testing::any_error_of(
                  [&] { channel->call("fail", {std::to_string(i)}, {.limit = kLong}); }),
              expected);
  }
  // A caller can tell them from those of the transport.
  try {
    channel->call("fail", {"7"}, {.limit = kLong});
  } catch (const UnavailableError& error) {
    EXPECT_EQ(dynamic_cast<const PeerUnavailableError*>(&error), nullptr);
  }
}

TEST_P(Calls, OtherExceptionsAndUnknownMethodsAreErrors) {
  const auto server = serve({}, {{"fail", [](const CallContext&, Message request) -> Message {
                                    if (request.header == "number") throw 7;
                                    if (request.header == "memory") throw std::bad_alloc();
                                    throw std::logic_error("odd");
                                  }}});
  const auto channel = connect(*server);
  const auto outcome = [&](const std::string& method, const std::string& header) {
    return tandem::testing::any_error_of(
        [&] { channel->call(method, {header}, {.limit = kLong}); });
  };
  EXPECT_EQ(outcome("fail", ""), "InternalError: [rpc] the handler of 'fail' failed: odd");
  EXPECT_EQ(outcome("fail", "number"), "InternalError: [rpc] the handler of 'fail' failed");
  EXPECT_EQ(outcome("fail", "memory"),
            "ResourceExhaustedError: [rpc] the server has no memory for a call of 'fail'");
  EXPECT_EQ(outcome("push", ""), "NotFoundError: [rpc] the server has no method 'push'");
  EXPECT_EQ(echo_header(*channel, "still there"), "still there");
}

TEST_F(RpcOptions, OptionsThatCannotWorkAreErrors) {
  const auto server_error = [](ServerOptions options) {
    return error_of<InvalidArgumentError>([&] { make_grpc_server(std::move(options)); });
  };
  expect_parts(server_error({}), {"expected the job's token, got an empty one"});
  expect_parts(server_error({.token = "t", .threads = 0}), {"positive number of threads, got 0"});
  expect_parts(server_error({.token = "t", .largest_message = std::size_t{1} << 40}),
               {"expected a largest message of 1 to 2147483647 bytes, got 1099511627776"});
  expect_parts(server_error({.token = "t", .silence_limit = milliseconds(1)}),
               {"expected a limit of silence of 200 to 86400000 ms, got 1"});
  expect_parts(server_error({.token = "t", .tls = TlsIdentity{}}),
               {"the server's TLS identity: expected a certificate in PEM"});
  const auto channel_error = [](const std::function<void(ChannelOptions&)>& change) {
    ChannelOptions options = to_port(1);
    change(options);
    return error_of<InvalidArgumentError>([&] { make_grpc_channel(std::move(options)); });
  };
  expect_parts(channel_error([](auto& options) { options.port = 0; }),
               {"expected the host and port of task /job:ps/task:0, got '127.0.0.1' and 0"});
  expect_parts(channel_error([](auto& options) { options.caller = "a\nb"; }), {"printable ASCII"});
  expect_parts(channel_error([](auto& options) { options.token = ""; }), {"token"});
  expect_parts(channel_error([](auto& options) { options.root_certificate = "?"; }),
               {"the root certificate: expected a certificate in PEM"});
  expect_parts(error_of<InvalidArgumentError>([] {
                 make_grpc_channel(to_port(1))->start("m", {}, {.limit = milliseconds(0)});
               }),
               {"call of 'm' on task /job:ps/task:0 (127.0.0.1:1)", "positive time limit"});
}

TEST_F(RpcOptions, AServerIsUsedInOrder) {
  const auto server = make_grpc_server({.token = kToken});
  expect_parts(error_of<FailedPreconditionError>([&] { server->port(); }), {"has not started"});
  server->handle("a", echo);
  expect_parts(error_of<AlreadyExistsError>([&] { server->handle("a", echo); }),
               {"method 'a' has a handler"});
  server->start();
  expect_parts(error_of<FailedPreconditionError>([&] { server->handle("b", echo); }),
               {"handler of 'b': the server has started"});
  expect_parts(error_of<FailedPreconditionError>([&] { server->start(); }), {"was started before"});
  server->stop(kLong);
  server->stop(kLong);
}

TEST_F(RpcOptions, AUnixSocketIsInADirectoryOfThisUserAlone) {
  const tandem::testing::TemporaryDirectory folder;
  const std::string path = (folder / "server").string();
  const auto server = serve({.unix_path = path});
  EXPECT_EQ(server->port(), 0);
  expect_parts(error_of<AlreadyExistsError>([&] { serve({.unix_path = path}); }),
               {"cannot listen on unix:", path.c_str(), "another job or program listens there"});
  ChannelOptions options{.unix_path = path, .task = "ps:0", .token = kToken};
  EXPECT_EQ(echo_header(*make_grpc_channel(options), "still there"), "still there");
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0750));
  const char* const open = "closed to others (mode 0700)";
  expect_parts(error_of<FailedPreconditionError>([&] { make_grpc_channel(options); }), {open});
  expect_parts(error_of<FailedPreconditionError>([&] { serve({.unix_path = path + "2"}); }),
               {open});
  options.unix_path = "/nowhere/server";
  expect_parts(error_of<NotFoundError>([&] { make_grpc_channel(options); }), {"/nowhere/server"});
  for (const std::string& bad : {std::string("server"), "/" + std::string(107, 'a')}) {
    options.unix_path = bad;
    expect_parts(error_of<InvalidArgumentError>([&] { make_grpc_channel(options); }),
                 {"absolute path of at most 107 bytes", bad.c_str()});
  }
}

TEST_F(RpcOptions, AnAddressThatCannotBeUsedIsAnError) {
  const auto server = serve();
  expect_parts(error_of<AlreadyExistsError>([&] { serve({.port = server->port()}); }),
               {"another job or program listens there"});
  expect_parts(error_of<InvalidArgumentError>([&] { serve({.host = "192.0.2.1"}); }),
               {"192.0.2.1"});
}

}  // namespace
}  // namespace tandem::rpc::calls_test
