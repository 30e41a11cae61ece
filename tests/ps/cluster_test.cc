// Clusters: resolvers, servers in this process, and the chief's view of them.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "comm/rendezvous/socket.h"
#include "ps/chief_watch.h"
#include "ps/cluster.h"
#include "ps/doubling.h"
#include "rpc/certificate.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/cluster.h"

namespace tandem::ps::cluster_test {
namespace {

using namespace std::chrono_literals;
using distribute::ClusterSecurity;
using distribute::ClusterSpec;
using distribute::Server;
using distribute::ServerOptions;
using distribute::SimpleClusterResolver;
using distribute::TFConfigClusterResolver;
using namespace tandem::testing;
using testing::Doubling;

constexpr const char* kConfig =
    R"({"cluster": {"chief": ["c:1"], "worker": ["a:1", "b:2"], "ps": ["[::1]:3"]},)"
    R"( "task": {"type": "worker", "index": 1}})";

TEST(ClusterResolver, ReadsTfConfig) {
  setenv("TF_CONFIG", kConfig, 1);
  const TFConfigClusterResolver cluster;
  EXPECT_EQ(cluster.task_type(), "worker");
  EXPECT_EQ(cluster.task_id(), 1);
  EXPECT_EQ(cluster.cluster_spec(),
            (ClusterSpec{{"chief", {"c:1"}}, {"ps", {"[::1]:3"}}, {"worker", {"a:1", "b:2"}}}));
  setenv("TF_CONFIG", R"({"cluster": {"chief": ["a:1", "b:1"]}})", 1);
  expect_error<InvalidArgumentError>([] { TFConfigClusterResolver(); },
                                     "[TF_CONFIG] There must be at most one 'chief' job.");
}

TEST(ClusterResolver, WithoutTfConfigThereIsNoCluster) {
  for (const char* text : {"", "{}"}) {
    setenv("TF_CONFIG", text, 1);
    const TFConfigClusterResolver cluster;
    EXPECT_EQ(cluster.task_type(), "");
    EXPECT_EQ(cluster.task_id(), 0);
    EXPECT_TRUE(cluster.cluster_spec().empty());
  }
}

TEST(ClusterResolver, AClusterOfTheProgramIsCheckedAlike) {
  const auto error = [](const ClusterSpec& cluster, const std::string& type, int index) {
    return any_error_of([&] { SimpleClusterResolver(cluster, type, index); });
  };
  const ClusterSpec good = {{"chief", {"c:1"}}, {"worker", {"a:1"}}};
  EXPECT_EQ(error(good, "worker", 0), "no error");
  EXPECT_EQ(error(good, "evaluator", 0), "no error");
  EXPECT_EQ(error({{"chief", {"a:1", "b:1"}}}, "chief", 0),
            "InvalidArgumentError: [TF_CONFIG] There must be at most one 'chief' job.");
  EXPECT_EQ(error({{"worker", {"a:1"}}, {"evaluator", {"b:1", "c:1"}}}, "worker", 0),
            "InvalidArgumentError: [TF_CONFIG] There must be at most one 'evaluator' job.");
  EXPECT_EQ(error({{"master", {"a:1"}}}, "worker", 0),
            "InvalidArgumentError: [TF_CONFIG] Disallowed task type found in cluster spec. Allowed "
            "types are chief, worker, ps, evaluator and the cluster spec is "
            "{\"master\":[\"a:1\"]}.");
  EXPECT_EQ(error(good, "master", 0),
            "InvalidArgumentError: [TF_CONFIG] Unrecognized task_type: \"master\", valid task "
            "types are: chief, worker, ps, evaluator.");
  EXPECT_EQ(error(good, "ps", 0),
            "InvalidArgumentError: [TF_CONFIG] `task_type` 'ps' not found in cluster_spec.");
  EXPECT_EQ(error(good, "worker", 1),
            "InvalidArgumentError: [TF_CONFIG] The `task_id` 1 exceeds the maximum id of worker, "
            "0.");
  EXPECT_EQ(error(good, "worker", -1),
            "InvalidArgumentError: [TF_CONFIG] expected a `task_id` of at least 0, got -1");
}

std::string address_of(const Server& server) { return fmt::format("127.0.0.1:{}", server.port()); }
std::string join(Server& server) {
  return any_error_of([&] { server.join(); });
}

class InOneProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
    for (const char* name : {"TANDEM_JOB_TOKEN", "TANDEM_TLS", "TANDEM_PS_SNAPSHOTS", "TF_CONFIG"})
      unsetenv(name);
  }
  void TearDown() override {
    chief_.reset();
    tasks_.clear();
  }

  void start(const ServerOptions& options = {}, int servers = 2, int workers = 2) {
    spec_ = {{"chief", {"127.0.0.1:1"}}};
    for (const auto& [type, count] : {std::pair{"ps", servers}, std::pair{"worker", workers}}) {
      for (int i = 0; i < count; ++i) spec_[type].push_back("127.0.0.1:0");
      for (int i = 0; i < count; ++i) {
        tasks_.push_back(std::make_unique<Server>(SimpleClusterResolver(spec_, type, i), options));
        spec_[type][static_cast<std::size_t>(i)] = address_of(*tasks_.back());
      }
    }
  }
  Cluster& attach(const Cluster::Options& options = {.start_limit = kFarAway}) {
    chief_ = std::make_unique<Cluster>(SimpleClusterResolver(spec_, "chief", 0), options);
    return *chief_;
  }

  ClusterSpec spec_;
  std::vector<std::unique_ptr<Server>> tasks_;  // they serve without join()
  std::unique_ptr<Cluster> chief_;
};

// Runs closures and returns their sum.
double run_closures(const Cluster& cluster, int closures) {
  const auto coordinator = Doubling().coordinate(cluster);
  for (int i = 0; i < closures; ++i) coordinator->schedule(Doubling::add(i));
  coordinator->join();
  return Doubling::value(cluster).first;
}

TEST_F(InOneProcess, ClosuresRunAndTheChiefEndsTheTasks) {
  start();
  Cluster& cluster = attach();
  ASSERT_EQ(cluster.servers().size(), 2u);
  ASSERT_EQ(cluster.workers().size(), 2u);
  EXPECT_EQ(cluster.servers()[1].name, "ps:1 (" + address_of(*tasks_[1]) + ")");
  EXPECT_EQ(cluster.workers()[0].name, "worker:0 (" + address_of(*tasks_[2]) + ")");
  EXPECT_EQ(run_closures(cluster, 40), 40.0 * 39 / 2);
  chief_->shutdown();
  for (const auto& task : tasks_) EXPECT_EQ(join(*task), "no error");
}

TEST_F(InOneProcess, TheChiefEndsTheTasksWhenItIsDestroyed) {
  start();
  attach();
  chief_.reset();
  for (const auto& task : tasks_) EXPECT_EQ(join(*task), "no error");
}

TEST_F(InOneProcess, MissingTasksAreNamedAndTheOthersEnd) {
  start();
  const std::uint16_t closed = tandem::testing::free_port();
  spec_["ps"].push_back(fmt::format("127.0.0.1:{}", closed));
  EXPECT_EQ(any_error_of([&] { attach({.start_limit = 3s}); }),
            fmt::format("DeadlineExceededError: [ParameterServerStrategy] ps:2 (127.0.0.1:{}) was "
                        "not reached within 3000 ms",
                        closed));
  for (const auto& task : tasks_) EXPECT_EQ(join(*task), "no error");
}

TEST_F(InOneProcess, ATaskMayStartAfterTheChief) {
  start();
  const std::uint16_t port = tandem::testing::free_port();
  spec_["ps"].push_back(fmt::format("127.0.0.1:{}", port));
  std::unique_ptr<Server> late;
  std::thread starting([&] {
    std::this_thread::sleep_for(100ms);
    late = std::make_unique<Server>(SimpleClusterResolver(spec_, "ps", 2));
  });
  EXPECT_EQ(attach().servers().size(), 3u);
  starting.join();
  chief_.reset();
  EXPECT_EQ(join(*late), "no error");
}

TEST_F(InOneProcess, AnotherChiefIsRefused) {
  start();
  attach();
  expect_parts(any_error_of([&] {
                 Cluster(SimpleClusterResolver(spec_, "chief", 0), {.start_limit = kFarAway});
               }),
               {"FailedPreconditionError: [Server] ps:0 serves another chief, or an earlier run of "
                "this one: restart the task"});
  EXPECT_EQ(run_closures(*chief_, 3), 3.0);
}

TEST_F(InOneProcess, TasksThatAreSwappedAreAnError) {
  start();
  std::swap(spec_["ps"][0], spec_["worker"][1]);
  expect_parts(any_error_of([&] { attach(); }),
               {"FailedPreconditionError",
                "[Server] this task is worker:1, and the chief expects ps:0 here"});
}

TEST_F(InOneProcess, AClusterWithoutServersOrWorkersIsAnError) {
  const auto error = [](const ClusterSpec& spec, const std::string& type) {
    return any_error_of([&] { Cluster(SimpleClusterResolver(spec, type, 0), {}); });
  };
  const std::string start = "InvalidArgumentError: [ParameterServerStrategy] ";
  EXPECT_EQ(error({}, ""), start + "Cluster spec must be non-empty in `ClusterResolver`.");
  EXPECT_EQ(error({{"chief", {"a:1"}}, {"worker", {"a:2"}}}, "chief"),
            start + "There must be at least one ps.");
  EXPECT_EQ(error({{"chief", {"a:1"}}, {"ps", {"a:2"}}}, "chief"),
            start + "There must be at least one worker.");
  EXPECT_EQ(error({{"worker", {"a:1"}}, {"ps", {"a:2"}}}, "ps"),
            start + "this process is a task of type 'ps', which runs a Server; expected 'chief'");
  EXPECT_EQ(error({{"chief", {"a:1"}}, {"worker", {"a"}}, {"ps", {"a:2"}}}, "chief"),
            "InvalidArgumentError: [cluster] expected HOST:PORT or unix:/PATH as the address of "
            "worker:0, got 'a'");
}

TEST_F(InOneProcess, AServerIsForWorkersAndParameterServers) {
  const ClusterSpec spec = {{"chief", {"127.0.0.1:0"}}, {"ps", {"127.0.0.1:0"}}};
  EXPECT_EQ(any_error_of([&] { Server(SimpleClusterResolver(spec, "chief", 0)); }),
            "InvalidArgumentError: [Server] expected a task of type 'worker' or 'ps', got 'chief'");
  EXPECT_EQ(any_error_of([&] { Server(SimpleClusterResolver({}, "", 0)); }),
            "InvalidArgumentError: [Server] expected a task of type 'worker' or 'ps', got ''");
  EXPECT_EQ(
      any_error_of([&] { Server(SimpleClusterResolver(spec, "ps", 0), {.chief_limit = 0ms}); }),
      "InvalidArgumentError: [Server] expected a positive chief_limit, got 0 ms");
  EXPECT_EQ(
      any_error_of([&] { Server(SimpleClusterResolver(spec, "ps", 0), {.snapshot_seconds = 0}); }),
      "InvalidArgumentError: [Server] expected positive snapshot_seconds, got 0");
  EXPECT_EQ(
      any_error_of([&] { Server(SimpleClusterResolver(spec, "ps", 0), {.snapshot_updates = -1}); }),
      "InvalidArgumentError: [Server] expected snapshot_updates of at least 0, got -1");
}

TEST_F(InOneProcess, ATaskDoesNotWaitForeverForTheChief) {
  start({.chief_limit = 100ms}, 1, 1);
  EXPECT_EQ(join(*tasks_[0]),
            "UnavailableError: [Server] ps:0 has not heard of the chief for 100 ms");
  EXPECT_EQ(join(*tasks_[1]),
            "UnavailableError: [Server] worker:0 has not heard of the chief for 100 ms");
}

TEST_F(InOneProcess, TheChiefShowsThatItIsAlive) {
  std::atomic<int> heard = 0;
  const auto server = rpc::make_grpc_server({.token = "secret"});
  server->handle(kAttach, [&](const rpc::CallContext&, const rpc::Message&) {
    ++heard;
    return rpc::Message{.header = proto::AttachReply().SerializeAsString()};
  });
  server->start();
  const std::string address = fmt::format("127.0.0.1:{}", server->port());
  spec_ = {{"chief", {"127.0.0.1:1"}}, {"ps", {address}}, {"worker", {address}}};
  attach(
      {.security = {.token = "secret", .tls = false}, .start_limit = kFarAway, .heartbeat = 1ms});
  EXPECT_TRUE(eventually([&] { return heard >= 10; }));
}

TEST(ChiefWatch, HearsTheChief) {
  ChiefWatch watch("ps", 0, {});
  proto::AttachRequest request;
  request.set_type("ps");
  request.set_run(7);
  EXPECT_EQ(watch.attach(request).life().restarts_size(), 0);
  watch.end(8);  // of another run
  EXPECT_FALSE(watch.wait(kFarAway, 1ms));
  expect_error<UnavailableError>([&] { watch.wait(1ms, kFarAway); },
                                 "has not heard of the chief for 1 ms");
  watch.end(7);
  EXPECT_TRUE(watch.wait(1ms, kFarAway));
  request.set_run(0);
  expect_error<InvalidArgumentError>([&] { watch.attach(request); }, "expected a run, got 0");
}

TEST(ChiefWatch, KeepsTheRunInItsDirectory) {
  const TemporaryDirectory folder;
  proto::AttachRequest request;
  request.set_type("ps");
  request.set_run(~std::uint64_t{0});
  EXPECT_EQ(ChiefWatch("ps", 0, folder.path()).attach(request).life().restarts_size(), 0);
  EXPECT_EQ(ChiefWatch("ps", 0, folder.path(), 40).attach(request).life().restarts(0), 40u);
  {
    ChiefWatch again("ps", 0, folder.path(), 30);
    EXPECT_EQ(again.restarts(), (std::vector<std::uint64_t>{40, 30}));
    const auto restarts = again.attach(request).life().restarts();
    EXPECT_TRUE(std::equal(restarts.begin(), restarts.end(), again.restarts().begin()));
    request.set_run(5);
    expect_error<FailedPreconditionError>(
        [&] { again.attach(request); },
        "an earlier run of this one, whose snapshots are in '" + folder.path().string() + "'");
  }
  tandem::testing::write_file(folder / "run", "x");
  expect_error<DataLossError>([&] { ChiefWatch("ps", 0, folder.path()); },
                              "[Server] '" + (folder / "run").string() + "' is damaged");
}

TEST_F(InOneProcess, AServerContinuesFromItsSnapshot) {
  const TemporaryDirectory folder;
  setenv("TANDEM_PS_SNAPSHOTS", folder.path().c_str(), 1);
  start();
  attach({.start_limit = kFarAway, .heartbeat = 10ms});
  EXPECT_EQ(run_closures(*chief_, 10), 45.0);
  EXPECT_EQ(any_error_of([&] { Server(SimpleClusterResolver(spec_, "ps", 1)); }),
            "FailedPreconditionError: [Server] '" + (folder / "ps-1").string() +
                "' is in use by another process");
  const auto restart = [&] {
    tasks_[1].reset();
    tasks_[1] = std::make_unique<Server>(SimpleClusterResolver(spec_, "ps", 1));
  };
  restart();
  EXPECT_EQ(Doubling::value(*chief_), std::pair(45.0, std::uint64_t{10}));
  EXPECT_EQ(chief_->lost_updates()->counts(), std::vector<std::int64_t>(2, 0));
  chief_.reset();
  for (const auto& task : tasks_) EXPECT_EQ(join(*task), "no error");
  // The variables and closures are not those of the next run.
  restart();
  tasks_[0] = nullptr;
  tasks_[0] = std::make_unique<Server>(SimpleClusterResolver(spec_, "ps", 0));
  expect_parts(any_error_of([&] { attach(); }),
               {"FailedPreconditionError", "[Server] ps:0 serves another chief, or an earlier run",
                "whose snapshots are in '", "ps-0'"});
}

TEST_F(InOneProcess, TasksOfOneHostMayListenAtUnixSockets) {
  const TemporaryDirectory folder;
  const auto at = [&](const char* name) { return "unix:" + (folder / name).string(); };
  spec_ = {{"chief", {at("chief")}}, {"ps", {at("ps-0"), at("ps-1")}}, {"worker", {at("worker")}}};
  for (const auto& [type, index] : {std::pair{"ps", 0}, {"ps", 1}, {"worker", 0}})
    tasks_.push_back(std::make_unique<Server>(SimpleClusterResolver(spec_, type, index)));
  EXPECT_EQ(tasks_[0]->port(), 0);
  EXPECT_EQ(attach().servers()[1].name, "ps:1 (" + at("ps-1") + ")");
  EXPECT_EQ(run_closures(*chief_, 3), 3.0);
  chief_.reset();
  for (const auto& task : tasks_) EXPECT_EQ(join(*task), "no error");
  tasks_.clear();
}

// --- token and TLS ---

TEST_F(InOneProcess, OtherTokensAreRefused) {
  start({.security = {.token = "secret"}});
  for (const std::string token : {"Secret", "secret "}) {
    expect_parts(
        any_error_of([&] { attach({.security = {.token = token}, .start_limit = kFarAway}); }),
        {"FailedPreconditionError: [rpc] call of 'Task/Attach' on task ps:0",
         "did not prove that it belongs to the job: it has another token"});
  }
  setenv("TANDEM_JOB_TOKEN", "secret", 1);
  EXPECT_EQ(run_closures(attach(), 3), 3.0);
}

TEST_F(InOneProcess, ATokenIsNeededBetweenMachines) {
  const ClusterSpec spec = {{"chief", {"10.0.0.1:1"}}, {"ps", {"127.0.0.1:0"}}};
  EXPECT_EQ(any_error_of([&] { Server(SimpleClusterResolver(spec, "ps", 0)); }),
            "FailedPreconditionError: [cluster] other machines can reach the tasks: set the "
            "environment variable TANDEM_JOB_TOKEN to the same secret for all tasks");
}

// For instance Debian's /etc/hosts maps the machine's name to 127.0.1.1.
TEST_F(InOneProcess, ATaskWhoseOwnNameIsTheLoopbackListensEverywhere) {
  const ClusterSpec spec = {{"chief", {"10.0.0.1:1"}}, {"ps", {"localhost:0"}}};
  const Server server(SimpleClusterResolver(spec, "ps", 0),
                      {.security = {.token = "secret", .tls = false}});
  const auto channel = rpc::make_grpc_channel({.host = "127.0.0.7",  // not localhost's
                                               .port = server.port(),
                                               .task = "ps:0",
                                               .caller = "test",
                                               .token = "secret"});
  channel->call(kEnd, {}, {.limit = tandem::testing::kPatience});
}

TEST_F(InOneProcess, CertificatesFollowFromTheToken) {
  start({.security = {.token = "secret"}});
  const ClusterSecurity plain{.token = "secret", .tls = false};
  expect_parts(any_error_of([&] { attach({.security = plain, .start_limit = 300ms}); }),
               {"DeadlineExceededError: [ParameterServerStrategy] ps:0 (127.0.0.1:",
                "worker:1 (127.0.0.1:", "were not reached within 300 ms"});
  setenv("TANDEM_JOB_TOKEN", "secret", 1);
  EXPECT_EQ(run_closures(attach(), 3), 3.0);
}

TEST_F(InOneProcess, TheEnvironmentTurnsTlsOff) {
  setenv("TANDEM_TLS", "0", 1);
  start({.security = {.token = "secret"}});
  expect_parts(any_error_of([&] {
                 attach({.security = {.token = "secret", .tls = true}, .start_limit = kFarAway});
               }),
               {"FailedPreconditionError", "did not prove that it belongs to the job"});
  EXPECT_EQ(run_closures(attach({.security = {.token = "secret"}, .start_limit = kFarAway}), 3),
            3.0);
}

// Another user may listen at the port of a task that has ended.
TEST_F(InOneProcess, AStrangerAtTheAddressOfATaskGetsNoCredential) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const std::string address = to_string(endpoint_of(listener));
  spec_ = {{"chief", {"127.0.0.1:1"}}, {"ps", {address}}, {"worker", {address}}};
  std::atomic<bool> ended = false;
  std::string received;
  std::thread stranger([&] {
    std::vector<Socket> connections;
    bool last = false;  // reads once more: the chief has its error at once after the greeting
    while (!std::exchange(last, ended.load())) {
      if (Socket next = accept_from(listener); next.is_open()) {
        connections.push_back(std::move(next));
        const std::string settings("\0\0\0\4\0\0\0\0\0", 9);  // HTTP/2's greeting
        any_error_of([&] { send_all(connections.back(), settings, Clock::now() + 10s); });
      }
      for (const Socket& each : connections) any_error_of([&] { received += receive_some(each); });
      std::this_thread::sleep_for(1ms);
    }
  });
  expect_parts(any_error_of([&] { attach({.security = {.token = "secret"}, .start_limit = 30s}); }),
               {"FailedPreconditionError", "the server did not prove that it belongs to the job"});
  ended = true;
  stranger.join();
  EXPECT_FALSE(received.empty());
  EXPECT_EQ(received.find("tandem-credential-bin"), std::string::npos);
}

TEST_F(InOneProcess, AServerRaisesTheLimitOfDescriptors) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max - 1, 256);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  start({}, 1, 1);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST_F(InOneProcess, CertificatesComeFromFiles) {
  const TemporaryDirectory folder;
  const rpc::TlsIdentity identity = rpc::make_self_signed_certificate(
      std::array<std::string, 1>{"127.0.0.1"}, std::chrono::hours(1));
  tandem::testing::write_file(folder / "certificate", identity.certificate);
  tandem::testing::write_file(folder / "key", identity.key);
  const ClusterSecurity tasks{.token = "secret",
                              .certificate_file = (folder / "certificate").string(),
                              .key_file = (folder / "key").string()};
  start({.security = tasks});
  const ClusterSecurity chief{.token = "secret",
                              .root_certificate_file = (folder / "certificate").string()};
  EXPECT_EQ(run_closures(attach({.security = chief, .start_limit = kFarAway}), 3), 3.0);
  const auto error = [&](const ClusterSecurity& security) {
    return any_error_of(
        [&] { Server(SimpleClusterResolver(spec_, "ps", 0), {.security = security}); });
  };
  EXPECT_EQ(error({.certificate_file = "/nowhere", .key_file = "/nowhere"}),
            "NotFoundError: [cluster] cannot read '/nowhere'");
  EXPECT_EQ(error({.key_file = "/nowhere"}),
            "InvalidArgumentError: [cluster] expected both certificate_file and key_file, got '' "
            "and '/nowhere'");
  EXPECT_EQ(error({.tls = false, .root_certificate_file = "/nowhere"}),
            "InvalidArgumentError: [cluster] got certificates, but tls is false");
  EXPECT_EQ(error(chief),
            "InvalidArgumentError: [cluster] ps:0 serves, and needs a certificate_file and a "
            "key_file beside the root_certificate_file");
}

TEST_F(InOneProcess, ARefusalIsReportedWhileOthersAreMissing) {
  start({.security = {.token = "another"}}, 1, 1);
  spec_["ps"].push_back("127.0.0.1:1");  // nothing listens there
  expect_error<FailedPreconditionError>(
      [&] { attach({.security = {.token = "secret"}, .start_limit = kFarAway}); }, "");
}

TEST_F(InOneProcess, TheChiefSaysForWhomItWaits) {
  start({}, 1, 1);
  spec_["ps"].push_back("127.0.0.1:1");
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(attach({.start_limit = 3s, .report_after = 1ms}), DeadlineExceededError);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto first = log.find("the chief waits for ps:1 (127.0.0.1:1) (");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_NE(log.find("the chief waits for ps:1", first + 1), std::string::npos) << log;
  EXPECT_EQ(log.find("waits for ps:0"), std::string::npos) << log;
}

}  // namespace
}  // namespace tandem::ps::cluster_test
