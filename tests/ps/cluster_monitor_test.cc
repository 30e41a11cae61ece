// ClusterMonitor, and tasks that give it answers that real ones rarely give.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "ps/task_meter.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/errors.h"
#include "support/grpc.h"
#include "support/tensors.h"
#include "tandem/cluster_status.h"

namespace tandem::ps::cluster_monitor_test {
namespace {

using namespace std::chrono_literals;
using distribute::ClusterMonitor;
using distribute::ClusterMonitorOptions;
using distribute::ClusterSpec;
using distribute::TaskState;
using distribute::TaskStatus;
using tandem::testing::expect_error;
using tandem::testing::expect_parts;

// A minute is more than any answer here takes.
ClusterMonitorOptions patient() {
  return {.security = {.token = "secret", .tls = false}, .limit = 60s};
}

// A task that gives the same answer to each call.
class Answering {
 public:
  explicit Answering(proto::StatusReply reply) : reply_(std::move(reply)) {
    if (reply_.task().empty()) reply_.set_task("worker:0");
    server_ = rpc::make_grpc_server({.token = "secret"});
    serve_status(*server_, [this](proto::StatusReply& reply) { reply = reply_; });
    server_->start();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

 private:
  proto::StatusReply reply_;
  std::unique_ptr<rpc::Server> server_;
};

class Monitor : public tandem::testing::GrpcTest {
 protected:
  static TaskStatus worker_with(const proto::StatusReply& reply) {
    const Answering worker(reply);
    return ClusterMonitor({{"worker", {worker.address()}}}, patient()).poll().at(0);
  }
  static TaskStatus chief_of(const proto::StatusReply& reply,
                             const ClusterMonitorOptions& options = patient()) {
    const Answering worker(reply);
    return ClusterMonitor({{"chief", {"127.0.0.1:1"}}, {"worker", {worker.address()}}}, options)
        .poll()
        .at(0);
  }
};

TEST_F(Monitor, AWorkerIsLateIfItsOldestClosureIs) {
  proto::StatusReply reply;
  reply.set_closures(64);
  reply.set_median_ms(2);
  EXPECT_EQ(worker_with(reply).state, TaskState::kReady);
  reply.set_running(1);
  reply.set_longest_ms(5'000);
  EXPECT_EQ(worker_with(reply).state, TaskState::kBusy);
  EXPECT_EQ(worker_with(reply).reason, "");
  reply.set_longest_ms(5'001);
  EXPECT_EQ(worker_with(reply).state, TaskState::kLate);
  EXPECT_EQ(worker_with(reply).reason, "a closure has run for 5001 ms, the median is 2 ms");
  reply.set_median_ms(1'000);
  EXPECT_EQ(worker_with(reply).state, TaskState::kBusy);
  reply.set_longest_ms(10'001);
  EXPECT_EQ(worker_with(reply).state, TaskState::kLate);
}

TEST_F(Monitor, TheFirstClosureOfAWorkerMayTakeAMinute) {
  proto::StatusReply reply;
  reply.set_running(1);
  reply.set_longest_ms(60'000);
  EXPECT_EQ(worker_with(reply).state, TaskState::kBusy);
  reply.set_longest_ms(60'001);
  EXPECT_EQ(worker_with(reply).state, TaskState::kLate);
  EXPECT_EQ(worker_with(reply).reason, "the first closure has run for 60001 ms");
}

TEST_F(Monitor, TheChiefIsAsOthersHaveHeardOfIt) {
  proto::StatusReply reply;
  EXPECT_EQ(chief_of(reply).state, TaskState::kGone);
  EXPECT_EQ(chief_of(reply).reason, "no task that answers serves it");
  reply.set_attached(true);
  reply.set_chief_silence_ms(15'000);
  EXPECT_EQ(chief_of(reply).state, TaskState::kReady);
  reply.set_chief_silence_ms(15'001);
  EXPECT_EQ(chief_of(reply).state, TaskState::kLate);
  EXPECT_EQ(chief_of(reply).reason, "nothing was heard of it for 15001 ms");
  reply.set_chief_silence_ms(30'001);
  EXPECT_EQ(chief_of(reply).state, TaskState::kGone);
  ClusterMonitorOptions later = patient();
  later.gone_after = 40s;
  EXPECT_EQ(chief_of(reply, later).state, TaskState::kLate);
}

// The system accepts connections for a process that does not answer.
TEST_F(Monitor, ATaskThatDoesNotAnswerIsLateAndThenGone) {
  const Socket silent = listen_on({"127.0.0.1", 0});
  const ClusterSpec cluster = {{"worker", {to_string(endpoint_of(silent))}}};
  TaskStatus status = ClusterMonitor(cluster, {.limit = 50ms, .gone_after = 1h}).poll().at(0);
  EXPECT_EQ(status.state, TaskState::kLate);
  EXPECT_EQ(status.reason, "no answer within 50 ms");
  EXPECT_FALSE(status.answered);
  status = ClusterMonitor(cluster, {.limit = 50ms, .gone_after = 1ms}).poll().at(0);
  EXPECT_EQ(status.state, TaskState::kGone);
  expect_parts(status.reason, {"nothing was heard of it for"});
}

TEST_F(Monitor, AnotherTaskAtTheAddressIsAnError) {
  proto::StatusReply reply;
  reply.set_task("ps:1");
  expect_error<FailedPreconditionError>([&] { worker_with(reply); }, "expected worker:0 at ");
}

TEST_F(Monitor, RefusesBadOptions) {
  const auto refuse = [](const ClusterSpec& cluster, const ClusterMonitorOptions& options,
                         const std::string& part) {
    expect_error<InvalidArgumentError>([&] { ClusterMonitor(cluster, options); }, part);
  };
  const ClusterSpec cluster = {{"worker", {"127.0.0.1:1"}}};
  refuse(cluster, {.limit = 0ms}, "expected a positive limit, got 0 ms");
  refuse(cluster, {.gone_after = -1ms}, "expected a positive gone_after, got -1 ms");
  refuse({{"chief", {"127.0.0.1:1"}}}, {}, "expected a cluster with workers or servers");
}

}  // namespace
}  // namespace tandem::ps::cluster_monitor_test
