// Limits of time and size, cancellation, and the end of a server.
#include <atomic>
#include <thread>

#include "rpc/task.h"

namespace tandem::rpc::limits_test {
namespace {

using namespace testing;
class Limits : public RpcOver {};
TANDEM_OVER_ALL_TRANSPORTS(Limits);
using Clock = std::chrono::steady_clock;

Message bytes(std::size_t count) { return {"", {attachment_of(random_bytes(count, 1))}}; }

TEST_P(Limits, ACallEndsAtItsTimeLimit) {
  std::atomic<bool> cancelled = false;
  const auto server = serve({}, {{"wait", [&](const CallContext& context, Message) -> Message {
                                    eventually([&] { return context.cancelled(); });
                                    cancelled = true;
                                    return {};
                                  }}});
  const auto channel = connect(*server);
  EXPECT_EQ(
      error_of<CallDeadlineError>([&] { channel->call("wait", {}, {.limit = milliseconds(200)}); }),
      fmt::format("[rpc] call of 'wait' on task /job:ps/task:0 ({}) did not end within 200 ms",
                  address(*server)));
  EXPECT_TRUE(eventually([&] { return cancelled.load(); }));
  EXPECT_EQ(echo_header(*channel, "next"), "next");
}

TEST_P(Limits, LargerMessagesAreErrors) {
  constexpr std::size_t kLimit = 100'000;
  const auto make = [](const CallContext&, Message request) {
    return bytes(std::stoul(request.header));
  };
  const auto server = serve({.largest_message = kLimit}, {{"make", make}});
  const auto large_server = serve({}, {{"make", make}});
  const auto small = [&](const Server& to) {
    ChannelOptions options = to_server(to);
    options.largest_message = kLimit;
    return connect(options);
  };
  const std::string frame = std::to_string(kLimit + 24);  // the attachment's, and 24 bytes
  // The request: of the channel's limit, and of the server's.
  expect_parts(error_of<ResourceExhaustedError>(
                   [&] { small(*server)->call("echo", bytes(kLimit), {.limit = kLong}); }),
               {"call of 'echo' on task /job:ps/task:0", "the request has ", frame.c_str(),
                " bytes, more than the limit of 100000"});
  const auto channel = connect(*server);
  expect_parts(error_of<ResourceExhaustedError>(
                   [&] { channel->call("echo", bytes(kLimit), {.limit = kLong}); }),
               {"call of 'echo' on task /job:ps/task:0", frame.c_str(), "100000"});
  // The reply: of the server's limit, and of the channel's.
  EXPECT_EQ(
      error_of<ResourceExhaustedError>(
          [&] { channel->call("make", {std::to_string(kLimit)}, {.limit = kLong}); }),
      "[rpc] the reply of 'make' has " + frame + " bytes, more than the server's limit of 100000");
  const auto small_channel = small(*large_server);
  expect_parts(error_of<ResourceExhaustedError>([&] {
                 small_channel->call("make", {std::to_string(kLimit)}, {.limit = kLong});
               }),
               {"call of 'make' on task /job:ps/task:0", frame.c_str(), "100000"});
  const Message most = channel->call("echo", bytes(kLimit - 24), {.limit = kLong});
  EXPECT_EQ(most.attachments.at(0).bytes.size(), kLimit - 24);
  EXPECT_EQ(echo_header(*small_channel, "next"), "next");
}

TEST_P(Limits, ACancelledCallEndsAtOnce) {
  std::atomic<int> started = 0, cancelled = 0;
  const auto server = serve({}, {{"wait", [&](const CallContext& context, Message) -> Message {
                                    ++started;
                                    eventually([&] { return context.cancelled(); });
                                    ++cancelled;
                                    return {};
                                  }}});
  const auto channel = connect(*server);
  auto call = channel->start("wait", {}, {.limit = kLong});
  eventually([&] { return started == 1; });
  call->cancel();
  expect_parts(error_of<AbortedError>([&] { call->wait(); }),
               {"[rpc] call of 'wait' on task /job:ps/task:0", " was cancelled"});
  EXPECT_TRUE(eventually([&] { return cancelled == 1; }));
  call = channel->start("wait", {}, {.limit = kLong});
  eventually([&] { return started == 2; });
  call.reset();
  EXPECT_TRUE(eventually([&] { return cancelled == 2; }));
  call = channel->start("echo", {"late"}, {.limit = kLong});
  eventually([&] { return call->done(); });
  call->cancel();  // too late
  EXPECT_EQ(call->wait().header, "late");
}

TEST_P(Limits, ABusyServerRefusesCalls) {
  std::atomic<bool> runs = false, ends = false;
  const auto server =
      serve({.threads = 1, .waiting_calls = 1}, {{"wait", [&](const CallContext&, Message request) {
                                                    runs = true;
                                                    eventually([&] { return ends.load(); });
                                                    return request;
                                                  }}});
  const auto channel = connect(*server);
  const auto first = channel->start("wait", {"a"}, {.limit = kLong});
  eventually([&] { return runs.load(); });
  std::vector<std::unique_ptr<Call>> more;
  for (int i = 0; i < 2; ++i) more.push_back(channel->start("wait", {"b"}, {.limit = kLong}));
  eventually([&] { return more[0]->done() || more[1]->done(); });
  Call& refused = more[0]->done() ? *more[0] : *more[1];
  Call& waits = more[0]->done() ? *more[1] : *more[0];
  EXPECT_EQ(error_of<ResourceExhaustedError>([&] { refused.wait(); }),
            "[rpc] the server is busy: 1 calls wait for its 1 threads");
  EXPECT_FALSE(waits.done());
  ends = true;
  EXPECT_EQ(first->wait().header, "a");
  EXPECT_EQ(waits.wait().header, "b");
}

TEST_P(Limits, StoppingWaitsForRunningCalls) {
  std::atomic<bool> runs = false, ends = false;
  const auto server = serve({}, {{"wait", [&](const CallContext&, Message request) {
                                    runs = true;
                                    eventually([&] { return ends.load(); });
                                    return request;
                                  }}});
  const auto channel = connect(*server);
  const auto running = channel->start("wait", {"done"}, {.limit = kLong});
  eventually([&] { return runs.load(); });
  std::atomic<bool> stopped = false;
  std::jthread stopping([&] {
    server->stop(kLong);
    stopped = true;
  });
  // It refuses calls from when it has begun to stop.
  EXPECT_TRUE(eventually([&] {
    return error_of<PeerUnavailableError>([&] { echo_header(*channel, "new"); }) != "no error";
  }));
  EXPECT_FALSE(stopped);
  EXPECT_FALSE(running->done());
  ends = true;
  EXPECT_EQ(running->wait().header, "done");
}

TEST_P(Limits, StoppingCancelsCallsThatRunLonger) {
  std::atomic<int> started = 0;
  const auto server =
      serve({.threads = 4}, {{"wait", [&](const CallContext& context, Message request) {
                                ++started;
                                eventually([&] { return context.cancelled(); });
                                return request;
                              }}});
  const auto channel = connect(*server);
  std::vector<std::unique_ptr<Call>> calls;  // more than threads: some still wait for one
  for (int i = 0; i < 20; ++i) calls.push_back(channel->start("wait", {}, {.limit = kLong}));
  eventually([&] { return started == 4; });
  const auto before = Clock::now();
  server->stop(milliseconds(300));
  EXPECT_LT(Clock::now() - before, kLong / 4);
  for (const auto& call : calls)
    expect_parts(error_of<PeerUnavailableError>([&] { call->wait(); }),
                 {"call of 'wait' on task /job:ps/task:0"});
}

}  // namespace
}  // namespace tandem::rpc::limits_test
