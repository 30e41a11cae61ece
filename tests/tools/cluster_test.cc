// `tandem run --ps`: clusters of real processes, which are killed and attacked.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/unix_path.h"
#include "comm/rendezvous/url.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/grpc.h"
#include "support/hosts.h"
#include "support/waiting.h"
#include "tools/cluster_job.h"
#include "tools/command.h"
#include "tools/run_job.h"

namespace tandem::cluster_test {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using namespace std::chrono_literals;

// A job that trains until stop().
class TrainingCluster : public ClusterJob {
 public:
  // `rules`: MAX_STALENESS and CALLS_PER_UPDATE of the program.
  explicit TrainingCluster(const Words& options, const Words& rules = {}) {
    Words program = {TANDEM_CLUSTER_PROGRAM, stop_file().string()};
    program.insert(program.end(), rules.begin(), rules.end());
    start(options, program);
  }

  // Ends the job. Every server has had each update once, but for those that are reported as lost.
  // Returns their number.
  int stop() {
    write_file(stop_file(), "");
    const Result result = process().wait();
    EXPECT_EQ(result.status, 0) << result.err;
    const std::regex line(
        "ps:([01]): ([0-9]+) of ([0-9]+) updates, version ([0-9]+), ([0-9]+) lost");
    std::sregex_iterator server(result.out.begin(), result.out.end(), line);
    int lost = 0;
    for (const char* index : {"0", "1"}) {
      if (server == std::sregex_iterator()) {
        ADD_FAILURE() << result.out;
        return lost;
      }
      const std::smatch& found = *server;
      EXPECT_EQ(found[1], index);
      EXPECT_EQ(std::stoi(found[2]) + std::stoi(found[5]), std::stoi(found[3])) << found[0];
      EXPECT_EQ(found[4], found[2]) << found[0];
      lost += std::stoi(found[5]);
      ++server;
    }
    return lost;
  }

 private:
  fs::path stop_file() const { return folder_ / "stop"; }
  TemporaryDirectory folder_;
};

// Two addresses of this machine, which are hosts for the launcher.
Words options_of_two_hosts(const TemporaryDirectory& folder, const Words& more = {}) {
  write_file(folder / "ssh", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
  fs::permissions(folder / "ssh", fs::perms::owner_all);
  Words options = {"--hosts", "127.0.0.2:2,127.0.0.3:3", "--ssh", (folder / "ssh").string()};
  options.insert(options.end(), more.begin(), more.end());
  return cluster_options(options);
}

class RunCluster : public testing::GrpcTest {};

TEST_F(RunCluster, TasksServeTheChief) {
  TrainingCluster job(cluster_options());
  job.make_progress();
  for (const char* task : {"chief:0", "worker:0", "worker:1", "ps:0", "ps:1"})
    EXPECT_EQ(job.processes(task).size(), 1u) << task;
  job.stop();
  EXPECT_FALSE(contains(job.process().err(), "was killed")) << job.process().err();
}

TEST_F(RunCluster, KilledTasksContinue) {
  const TemporaryDirectory folder;
  TrainingCluster job(cluster_options({"--snapshots", folder.path().string()}));
  job.make_progress();
  for (const char* task : {"ps:1", "worker:0", "ps:1", "ps:0", "worker:1", "worker:0"}) {
    job.kill_task(task);
    job.make_progress();
  }
  const std::string snapshots = fs::directory_iterator(folder.path())->path().string();
  EXPECT_TRUE(fs::exists(snapshots + "/ps-0")) << snapshots;
  const int lost = job.stop();
  const std::string err = job.process().err();
  EXPECT_EQ(lost > 0, contains(err, "updates of calls that had returned")) << err;
  EXPECT_TRUE(std::regex_search(
      err, std::regex("tandem: rank 4, ps:1, \\(process [0-9]+ on localhost\\) was killed by "
                      "signal 9 \\(Killed\\); restart 2 of 10\n")))
      << err;
  expect_parts(err, {"[ps:1] ", "[ParameterServer] restored 1 variables"});
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// The rules hold over several servers, at whatever moment one of them is killed: also during a
// decision, between the two servers' parts of a step, and before a killed one has continued.
class KilledServers : public RunCluster, public ::testing::WithParamInterface<Words> {};

TEST_P(KilledServers, HaveEachUpdateOnceButForThoseThatAreReported) {
  TrainingCluster job(cluster_options({"--max-restarts", "100"}), GetParam());
  job.make_progress(60);
  for (int moment = 0; moment < 8; ++moment) {
    job.kill_task(moment % 3 == 1 ? "ps:0" : "ps:1");
    if (moment % 2 == 0) job.make_progress(1 + 60 * (moment % 3));
    std::this_thread::sleep_for(7ms * moment);  // another moment each time
  }
  job.kill_now("ps:0");
  job.kill_now("ps:1");
  job.make_progress(60);
  job.stop();
}

INSTANTIATE_TEST_SUITE_P(Rules, KilledServers, ::testing::Values(Words{"0", "1"}, Words{"0", "2"}));

// SIGTERM lets a server write a last snapshot.
TEST_F(RunCluster, AServerThatIsStoppedInOrderLosesNothing) {
  TrainingCluster job(cluster_options());
  job.make_progress();
  for (int i = 0; i < 2; ++i) {
    job.kill_task("ps:1", SIGTERM);
    job.make_progress();
  }
  EXPECT_EQ(job.stop(), 0);
  EXPECT_TRUE(contains(job.process().err(), "was stopped by SIGTERM, after its last snapshot"))
      << job.process().err();
}

// The second kill comes while the server continues from the snapshot.
TEST_F(RunCluster, TwoKillsInARowAreSurvived) {
  TrainingCluster job(cluster_options());
  job.make_progress();
  for (int i = 0; i < 3; ++i) {
    job.kill_task("ps:1");
    job.kill_task("ps:1");
  }
  job.make_progress();
  job.stop();
}

TEST_F(RunCluster, SnapshotsOfAJobThatFailedAreKept) {
  const TemporaryDirectory folder;
  TrainingCluster job(cluster_options({"--snapshots", folder.path().string()}));
  job.make_progress();
  ASSERT_TRUE(job.kill_now("chief:0"));
  const Result result = job.process().wait();
  EXPECT_EQ(result.status, 128 + SIGKILL);
  const std::string snapshots = fs::directory_iterator(folder.path())->path().string();
  EXPECT_TRUE(contains(result.err,
                       "tandem: the snapshots of the parameter servers on localhost are "
                       "kept in '" +
                           snapshots + "'\n"))
      << result.err;
  const auto whole = [&] {
    for (const auto& entry : fs::directory_iterator(snapshots + "/ps-1"))
      if (contains(entry.path().string(), "/snapshot-")) return true;
    return false;
  };
  EXPECT_TRUE(whole());
  // The next launcher leaves them alone.
  EXPECT_EQ(run(script(cluster_options({"--snapshots", folder.path().string()}),
                       "case $TF_CONFIG in *'\"type\":\"chief\"'*) exit 0;; esac; exec sleep 1000"))
                .status,
            0);
  EXPECT_TRUE(whole());
}

TEST_F(RunCluster, TasksOfOneHostListenAtNoPort) {
  TrainingCluster job(cluster_options());
  job.make_progress();
  std::set<fs::path> folders;
  for (const char* task : {"worker:0", "worker:1", "ps:0", "ps:1"})
    folders.insert(fs::path(unix_path_of(job.processes(task).back().address)).parent_path());
  ASSERT_EQ(folders.size(), 1u);
  EXPECT_EQ(fs::status(*folders.begin()).permissions(), fs::perms::owner_all);
  job.stop();
  EXPECT_FALSE(fs::exists(*folders.begin()));
}

// The error of a call without TLS, with a wrong token.
std::string error_without_tls(const TrainingCluster& job, const std::string& task) {
  const Endpoint endpoint = parse_endpoint(job.processes(task).back().address);
  const auto channel = rpc::make_grpc_channel({.host = endpoint.host,
                                               .port = endpoint.port,
                                               .task = task,
                                               .caller = "chief:0",
                                               .token = "a guess"});
  return any_error_of([&] { channel->call("Task/Status", {}, {.limit = 60s}); });
}

TEST_F(RunCluster, TasksOfSeveralHostsUseTlsByDefault) {
  for (const bool tls : {true, false}) {
    const TemporaryDirectory folder;
    TrainingCluster job(options_of_two_hosts(folder, tls ? Words{} : Words{"--no-tls"}));
    job.make_progress();
    for (const char* task : {"worker:0", "ps:1"})
      EXPECT_TRUE(contains(error_without_tls(job, task),
                           tls ? "the connection was lost" : "the token is not that of this job"));
    job.stop();
  }
}

TEST_F(RunCluster, TasksOfOtherHostsAreRestarted) {
  const TemporaryDirectory folder;
  TrainingCluster job(options_of_two_hosts(folder));
  job.make_progress();
  for (const char* task : {"worker:0", "ps:1"}) {
    job.kill_task(task);
    job.make_progress();
  }
  EXPECT_TRUE(contains(job.processes("ps:1").back().address, "127.0.0.3:"));
  job.stop();
}

// The second host, with the variable's server and a worker, is cut off until the chief notices.
TEST_F(RunCluster, ANetworkFailureHeals) {
  const testing::Hosts hosts;
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  hosts.write_remote_shell(folder / "shell");
  TrainingCluster job(cluster_options(
      {"--hosts", testing::Hosts::address(0) + ":2," + testing::Hosts::address(1) + ":3", "--ssh",
       (folder / "shell").string()}));
  job.make_progress();
  EXPECT_TRUE(contains(job.processes("ps:1").back().address, testing::Hosts::address(1)));
  ASSERT_TRUE(hosts.cut(1));
  const auto logged = [&](const std::string& part) {
    return eventually([&] { return contains(job.process().err(), part); });
  };
  EXPECT_TRUE(logged("ps:1 (" + job.processes("ps:1").back().address + ") is not reachable: "));
  ASSERT_TRUE(hosts.plug_in(1));
  EXPECT_TRUE(logged("is reachable again"));
  job.make_progress();
  job.stop();
  EXPECT_FALSE(contains(job.process().err(), "restart 1 of")) << job.process().err();
}

// --- other processes ---

TEST_F(RunCluster, PeersWithoutTheTokenGetNothing) {
  TrainingCluster job(cluster_options());
  job.make_progress();
  for (const char* task : {"ps:1", "worker:0"}) {
    const std::string path = unix_path_of(job.processes(task).back().address);
    const auto channel = rpc::make_grpc_channel(
        {.unix_path = path, .task = task, .caller = "chief:0", .token = "a guess"});
    for (const char* method : {"ParameterServer/Read", "ParameterServer/Apply", "Worker/Run",
                               "Worker/Probe", "Task/Attach", "Task/Status", "Task/End", "unknown"})
      expect_parts(any_error_of([&] { channel->call(method, {}, {.limit = 60s}); }),
                   {"FailedPreconditionError", "the token is not that of this job"});
  }
  job.make_progress();
  job.stop();
}

TEST_F(RunCluster, GarbageAndFloodsDoNoHarm) {
  const TemporaryDirectory folder;
  TrainingCluster job(options_of_two_hosts(folder));
  job.make_progress();
  const Clock::time_point end = Clock::now() + testing::kPatience;
  std::vector<Socket> open;
  for (const char* task : {"ps:1", "worker:0", "worker:1"}) {
    const Endpoint endpoint = parse_endpoint(job.processes(task).back().address);
    for (int i = 0; i < 200; ++i) {
      open.push_back(connect_to(endpoint, end));
      const std::string garbage(static_cast<std::size_t>(i) * 37, static_cast<char>(i));
      any_error_of([&] { send_all(open.back(), garbage, end); });
    }
  }
  job.make_progress();
  open.clear();
  job.make_progress();
  job.stop();
}

// --- the launcher alone ---

// The shell's test whether this is a task of the type.
std::string task_is(const std::string& type, const std::string& then) {
  return "case $TF_CONFIG in *'\"type\":\"" + type + "\"'*) " + then + ";; esac; ";
}

TEST(RunTasks, TheExitCodeIsTheChiefs) {
  for (const int code : {0, 3}) {
    const Result result = run(script(
        cluster_options(), task_is("chief", "exit " + std::to_string(code)) + "exec sleep 1000"));
    EXPECT_EQ(result.status, code) << result.err;
    EXPECT_EQ(contains(result.err, "rank 0, chief:0, (process "), code != 0) << result.err;
  }
}

TEST(RunTasks, TheEvaluatorMayFinish) {
  const TemporaryDirectory folder;
  const std::string ended = (folder / "chief-ended").string();
  const Result result =
      run(script(cluster_options({"--evaluator"}),
                 task_is("chief", "touch " + ended + "; exit 0") +
                     task_is("evaluator", "while [ ! -e " + ended +
                                              " ]; do sleep 0.01; done; sleep 0.3; "
                                              "echo evaluated; exit 0") +
                     "exec sleep 1000"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "[evaluator:0] evaluated\n");
}

TEST(RunTasks, RestartsAreLimited) {
  const Result result = run(script(cluster_options({"--max-restarts", "1"}),
                                   task_is("ps", "echo no luck >&2; exit 5") + "exec sleep 1000"));
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("tandem: rank [34], ps:[01], \\(process [0-9]+ on localhost\\) "
                             "exited with code 5; restart 1 of 1\n")))
      << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("AbortedError: \\[run\\] rank [34], ps:[01], \\(process [0-9]+ on "
                             "localhost\\) exited with code 5 and was restarted 1 times after")))
      << result.err;
  const Result none = run(script(cluster_options({"--max-restarts", "0"}),
                                 task_is("worker", "exit 6") + "exec sleep 1000"));
  EXPECT_EQ(none.status, 6);
  EXPECT_FALSE(contains(none.err, "; restart")) << none.err;
}

TEST(RunTasks, ATaskThatCannotStartEndsTheJobAfterThreeStarts) {
  const Result result =
      run(script(cluster_options(), task_is("worker", "exit 7") + "exec sleep 1000"));
  EXPECT_EQ(result.status, 7);
  EXPECT_TRUE(contains(result.err, "exited with code 7; restart 2 of 10\n")) << result.err;
  EXPECT_FALSE(contains(result.err, "restart 3 of 10")) << result.err;
  EXPECT_TRUE(contains(result.err,
                       "exited with code 7, as in each of 3 starts in a row, within 5 s: it cannot "
                       "start after"))
      << result.err;
}

TEST(RunTasks, ASignalEndsTasksWithoutRestarts) {
  Process job(script(cluster_options(), "echo ready; exec sleep 1000"), {});
  ASSERT_TRUE(eventually([&] { return testing::sorted_lines(job.out()).size() == 5; }));
  job.kill(SIGTERM);
  const Result result = job.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM);
  EXPECT_EQ(result.err, "");
}

TEST(RunTasks, AKilledLaunchersSnapshotsAreRemovedByTheNext) {
  const TemporaryDirectory folder;
  const Words options = cluster_options({"--snapshots", folder.path().string()});
  const auto directories = [&] {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
  };
  Process killed(script(options, task_is("ps", "touch $TANDEM_PS_SNAPSHOTS/$RANK") +
                                     "echo ready; exec sleep 1000"),
                 {});
  ASSERT_TRUE(eventually([&] { return testing::sorted_lines(killed.out()).size() == 5; }));
  EXPECT_EQ(directories(), 1);
  EXPECT_EQ(run(script(options, task_is("chief", "exit 0") + "exec sleep 1000")).status, 0);
  EXPECT_EQ(directories(), 1) << "of the job that still runs";
  killed.kill(SIGKILL);
  killed.wait();
  EXPECT_EQ(run(script(options, task_is("chief", "exit 0") + "exec sleep 1000")).status, 0);
  EXPECT_EQ(directories(), 0);
}

TEST(RunTasks, RefuseBadOptions) {
  const auto refuse = [](const Words& options, const std::string& part) {
    expect_failure(run(script(options, "true")), "InvalidArgumentError", part);
  };
  const std::string requires_chief =
      "[run] --ps requires --workers and --chief, which schedules the functions of the workers";
  refuse({"--ps", "1"}, requires_chief);
  refuse({"--ps", "1", "--workers", "2"}, requires_chief);
  refuse({"--ps", "1", "--chief"}, requires_chief);
  refuse({"--evaluator"}, "[run] --evaluator requires --workers or --chief");
  for (const Words& option :
       {Words{"--no-tls"}, Words{"--max-restarts", "1"}, Words{"--snapshots", "/"}}) {
    Words options = {"--workers", "2"};
    options.insert(options.end(), option.begin(), option.end());
    refuse(options, "[run] --max-restarts, --snapshots and --no-tls require --ps");
  }
  expect_failure(run(script(cluster_options({"--snapshots", "/nowhere"}), "true")), "NotFoundError",
                 "[run] cannot make a directory of the job in '/nowhere'");
}

}  // namespace
}  // namespace tandem::cluster_test
