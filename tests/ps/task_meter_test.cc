// The counters of a task.
#include "ps/task_meter.h"

#include <gtest/gtest.h>

#include "ps/direct_channel.h"
#include "ps/server_methods.h"
#include "ps/worker_methods.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::ps::task_meter_test {
namespace {

using tandem::testing::eventually;
using tandem::testing::expect_error;
using testing::DirectChannel;
using testing::DirectServer;

class Metered : public ::testing::Test {
 protected:
  proto::StatusReply status() const {
    proto::StatusReply reply;
    meter.describe(reply);
    return reply;
  }

  TaskMeter meter;
  DirectServer* direct = new DirectServer;  // that `server` owns
  const std::unique_ptr<rpc::Server> server = measured(std::unique_ptr<rpc::Server>(direct), meter);
};

TEST_F(Metered, CountsCallsAndTheirBytes) {
  for (const char* method : {kRead, kReadRows, kApply, kAssign})
    server->handle(method, [](const rpc::CallContext&, const rpc::Message&) {
      return rpc::Message{.header = "a reply"};
    });
  for (const char* method : {kRead, kRead, kReadRows, kApply, kAssign})
    direct->call(method, {.header = "a request"});
  EXPECT_EQ(status().pulls(), 3u);
  EXPECT_EQ(status().pushes(), 1u);
  EXPECT_EQ(status().closures(), 0u);
  DirectServer::Traffic all;
  for (const auto& [method, traffic] : direct->by_method) {
    all.sent += traffic.sent;
    all.received += traffic.received;
  }
  EXPECT_EQ(status().bytes_in(), all.sent);
  EXPECT_EQ(status().bytes_out(), all.received);
}

TEST_F(Metered, CountsTheBytesOfTheTasksOwnCalls) {
  DirectServer other;
  other.handle(kRead, [](const rpc::CallContext&, const rpc::Message&) {
    return rpc::Message{.header = "a longer reply"};
  });
  measured(std::make_shared<DirectChannel>(other), meter)
      ->call(kRead, {.header = "a request"}, {.limit = std::chrono::hours(1)});
  EXPECT_EQ(status().bytes_out(), other.by_method.at(kRead).sent);
  EXPECT_EQ(status().bytes_in(), other.by_method.at(kRead).received);
  EXPECT_EQ(status().pulls(), 0u);
}

TEST_F(Metered, KnowsHowLongClosuresRun) {
  bool fails = true;
  server->handle(kRun, [&](const rpc::CallContext&, const rpc::Message&) {
    EXPECT_EQ(status().running(), 1u);
    EXPECT_EQ(status().closures(), 0u);
    EXPECT_TRUE(eventually([&] { return status().longest_ms() >= 2; }));
    if (fails) throw InvalidArgumentError("fails");
    return rpc::Message();
  });
  expect_error<InvalidArgumentError>([&] { direct->call(kRun, {}); }, "fails");
  EXPECT_EQ(status().running(), 0u);
  EXPECT_EQ(status().closures(), 0u);
  EXPECT_EQ(status().median_ms(), 0u);
  fails = false;
  direct->call(kRun, {});
  EXPECT_EQ(status().running(), 0u);
  EXPECT_EQ(status().closures(), 1u);
  EXPECT_EQ(status().longest_ms(), 0u);
  EXPECT_GE(status().median_ms(), 2u);
}

}  // namespace
}  // namespace tandem::ps::task_meter_test
