// `tandem run`: the ranks' environments, their output, signals and failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "support/files.h"
#include "support/waiting.h"
#include "tools/command.h"
#include "tools/run_job.h"

namespace tandem::run_test {
namespace {

using namespace testing;
using namespace std::chrono_literals;

bool is_alive(pid_t process) { return kill(process, 0) == 0; }

TEST(Run, SetsTheEnvironmentOfEachRank) {
  const Result result =
      run(script({"-n", "3"},
                 "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR; "
                 "echo $MASTER_PORT $TANDEM_JOB_TOKEN $TANDEM_RENDEZVOUS >&2"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (Words{"[0] 0 0 3 3 127.0.0.1", "[1] 1 1 3 3 127.0.0.1", "[2] 2 2 3 3 127.0.0.1"}));
  // Ports and secret are the same for all ranks.
  std::set<std::string> said;
  for (const std::string& line : sorted_lines(result.err)) said.insert(line.substr(4));
  ASSERT_EQ(said.size(), 1u) << result.err;
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(*said.begin(), parts,
                               std::regex("([0-9]+) [0-9a-f]{32} 127\\.0\\.0\\.1:([0-9]+)")))
      << result.err;
  EXPECT_NE(parts[1], parts[2]);  // rank 0 has another port, too, for other uses
  EXPECT_NE(run(script({}, "echo $TANDEM_JOB_TOKEN")).out,
            run(script({}, "echo $TANDEM_JOB_TOKEN")).out);
}

// The TF_CONFIG of each of `ranks` ranks, by the label before its line. Workers and servers of a
// chief are terminated once the others have ended, so all wait for all lines.
std::map<std::string, nlohmann::json> configs(const Words& options, int ranks) {
  const TemporaryDirectory folder;
  const std::string place = folder.path().string();
  const Result result =
      run(script(options, "echo $TF_CONFIG; touch " + place + "/$RANK; while [ $(ls " + place +
                              " | wc -l) != " + std::to_string(ranks) + " ]; do sleep 0.01; done"));
  EXPECT_EQ(result.status, 0) << result.err;
  std::map<std::string, nlohmann::json> found;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const auto end = line.find("] ");
    found[line.substr(1, end - 1)] = nlohmann::json::parse(line.substr(end + 2));
  }
  return found;
}

TEST(Run, MakesEachRankAWorkerOfTfConfig) {
  const auto found = configs({"-n", "2"}, 2);
  ASSERT_EQ(found.size(), 2u);
  for (const auto& [rank, config] : found) {
    EXPECT_EQ(config["task"], (nlohmann::json{{"type", "worker"}, {"index", std::stoi(rank)}}));
    EXPECT_EQ(config["cluster"], found.at("0")["cluster"]);
  }
  const nlohmann::json workers = found.at("0")["cluster"]["worker"];
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_NE(workers[0], workers[1]);
  for (const nlohmann::json& worker : workers)
    EXPECT_TRUE(std::regex_match(worker.get<std::string>(), std::regex("127\\.0\\.0\\.1:[0-9]+")));
}

TEST(Run, MakesTasks) {
  const auto found = configs({"--workers", "2", "--ps", "1", "--chief", "--evaluator"}, 5);
  ASSERT_EQ(found.size(), 5u);
  const nlohmann::json& cluster = found.at("chief:0")["cluster"];
  EXPECT_EQ(cluster["chief"].size(), 1u);
  EXPECT_EQ(cluster["worker"].size(), 2u);
  EXPECT_EQ(cluster["ps"].size(), 1u);
  EXPECT_EQ(cluster["evaluator"].size(), 1u);
  EXPECT_EQ(found.at("worker:1")["task"], (nlohmann::json{{"type", "worker"}, {"index", 1}}));
  EXPECT_EQ(found.at("ps:0")["task"], (nlohmann::json{{"type", "ps"}, {"index", 0}}));
  std::set<std::string> addresses;
  for (const auto& [type, list] : cluster.items())
    for (const nlohmann::json& each : list) addresses.insert(each.get<std::string>());
  EXPECT_EQ(addresses.size(), 5u);
}

TEST(Run, DividesTheCores) {
  const std::string list = "taskset -cp $$ | sed 's/.*: //'";
  const Result all = run(script({"--bind", "none", "-n", "1"}, list));
  const Result bound = run(script({"-n", "2"}, list));
  EXPECT_EQ(bound.status, 0) << bound.err;
  const Words lines = sorted_lines(bound.out);
  ASSERT_EQ(lines.size(), 2u);
  // Two halves, or everything if there is a single core.
  const bool one = all.out.find_first_of(",-") == std::string::npos;
  EXPECT_EQ(one, lines[0].substr(4) == lines[1].substr(4)) << all.out;
  EXPECT_EQ(run(script({}, list)).out, all.out);
  EXPECT_EQ(run(script({"-n", "64"}, "true")).status, 0);  // more ranks than cores
}

TEST(Run, EndsWithItsRanksIfItsParentIgnoresThem) {
  const Process::Options ignored = {.ignores_ended_children = true};
  EXPECT_EQ(run(script({"-n", "2"}, "exit 3"), ignored).status, 3);
  EXPECT_EQ(run(script({"-n", "2"}, "exit 0"), ignored).status, 0);
}

TEST(Run, ForwardsOutputLineByLine) {
  const Result result = run(script({"-n", "2"},
                                   "for i in $(seq 200); do echo line $i of $RANK; "
                                   "echo error $i >&2; done; printf unfinished"));
  EXPECT_EQ(result.status, 0);
  const Words lines = sorted_lines(result.out);
  EXPECT_EQ(lines.size(), 402u);
  for (const std::string& line : lines)
    EXPECT_TRUE(std::regex_match(line, std::regex(R"(\[([01])\] (line [0-9]+ of \1|unfinished))")))
        << line;
  EXPECT_EQ(sorted_lines(result.err).size(), 400u);
  // A rank's line is never split, however long it is.
  const Result large = run(script({"-n", "2"}, "head -c 30000 /dev/zero | tr '\\0' $RANK; echo"));
  EXPECT_EQ(sorted_lines(large.out),
            (Words{"[0] " + std::string(30000, '0'), "[1] " + std::string(30000, '1')}));
}

TEST(Run, EndsWhenItsOutputIsClosed) {
  const std::string command = std::string("bash -c '") + TANDEM_COMMAND +
                              " run -n 2 -- yes | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 128 + SIGPIPE);
}

TEST(Run, WritesOutputIntoFiles) {
  const TemporaryDirectory folder;
  const Result result = run(script({"-n", "2", "--output", (folder / "a/b").string()},
                                   "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_EQ(read_file(folder / "a/b/rank_0.out"), "out 0\n");
  EXPECT_EQ(read_file(folder / "a/b/rank_1.out"), "out 1\n");
  EXPECT_EQ(read_file(folder / "a/b/rank_1.err"), "err 1\n");
  // The failed write is still reported.
  const Result failed =
      run(script({"-n", "2", "--output", (folder / "c").string()}, "echo no luck >&2; exit 1"));
  EXPECT_TRUE(contains(failed.err, "    no luck\n")) << failed.err;
  expect_failure(run(script({"--output", "/proc/nowhere"}, "true")), "NotFoundError",
                 "[run] --output: cannot write '/proc/nowhere/rank_0.out'");
}

TEST(Run, TerminatesTheJobIfOutputCannotBeWritten) {
  const TemporaryDirectory folder;
  std::filesystem::create_symlink("/dev/full", folder / "rank_1.out");
  expect_failure(run(script({"-n", "2", "--output", folder.path().string()},
                            "echo out; while true; do sleep 0.05; done")),
                 "ResourceExhaustedError",
                 "[run] the job was terminated: cannot write the ranks' output to '" +
                     (folder / "rank_1.out").string() + "': No space left on device\n");
}

TEST(Run, TerminatesTheOthersAndReportsTheFirstFailure) {
  const Result result = run(script({"-n", "3"},
                                   "if [ $RANK = 1 ]; then echo no luck >&2; exit 7; "
                                   "fi; trap 'echo ended; exit 1' TERM; "
                                   "while true; do sleep 0.05; done"));
  EXPECT_EQ(result.status, 7);
  EXPECT_TRUE(contains(result.err, "[1] no luck\n")) << result.err;
  EXPECT_TRUE(contains(result.err, "tandem: last lines of rank 1 on stderr:\n    no luck\n"))
      << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("tandem: AbortedError: \\[run\\] rank 1 \\(process [0-9]+ on "
                             "localhost\\) exited with code 7 after [0-9.]+ s; the other ranks "
                             "were terminated\n")))
      << result.err;
  EXPECT_FALSE(contains(result.err, "rank 0 ("));
}

TEST(Run, KillsRanksAfterTheGracePeriod) {
  const Result result = run(script({"-n", "2", "--grace", "0.2"},
                                   "if [ $RANK = 0 ]; then sleep 0.3; kill -SEGV $$; fi; trap '' "
                                   "TERM; while true; do sleep 0.05; done"));
  EXPECT_EQ(result.status, 128 + SIGSEGV);
  EXPECT_TRUE(contains(result.err, "was killed by signal 11 (Segmentation fault)")) << result.err;
}

TEST(Run, ForwardsSignals) {
  const std::string text =
      "trap 'echo usr1' USR1; trap 'echo term; exit 0' TERM; echo ready; "
      "while true; do sleep 0.02; done";
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Process job(script({"-n", "2"}, text), {});
    ASSERT_TRUE(eventually([&] { return sorted_lines(job.out()).size() == 2; }));
    job.kill(signal);
    if (signal == SIGUSR1) {
      ASSERT_TRUE(eventually([&] { return sorted_lines(job.out()).size() == 4; }));
      job.kill(SIGTERM);
    }
    const Result result = job.wait();
    EXPECT_EQ(result.status, 0) << result.err;  // exit code 0
    EXPECT_TRUE(contains(result.out, "[0] term\n") && contains(result.out, "[1] term\n"));
    EXPECT_EQ(contains(result.out, "[1] usr1\n"), signal == SIGUSR1);
  }
  Process job(script({"-n", "2"}, "echo ready; exec sleep 1000"), {});
  ASSERT_TRUE(eventually([&] { return sorted_lines(job.out()).size() == 2; }));
  job.kill(SIGINT);
  EXPECT_EQ(job.wait().status, 128 + SIGINT);
}

TEST(Run, ASecondSignalKills) {
  Process job(script({}, "trap '' INT; echo ready; while true; do sleep 0.05; done"), {});
  ASSERT_TRUE(eventually([&] { return contains(job.out(), "ready"); }));
  job.kill(SIGINT);
  // Several pending signals of one kind are delivered once.
  EXPECT_TRUE(eventually([&] {
    job.kill(SIGINT);
    std::this_thread::sleep_for(20ms);
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(job.id()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == job.id();
  }));
  EXPECT_EQ(job.wait().status, 128 + SIGINT);
}

// Ranks that start processes, and which of these are left afterwards.
class Orphans : public ::testing::Test {
 protected:
  // Each rank starts a sleep in its process group and one in another session.
  static constexpr const char* kScript =
      "sleep 1000 & echo $! $$; setsid sleep 1000 & echo $!; wait";
  // The six processes, once all have printed their numbers.
  std::vector<pid_t> processes(const Process& job) {
    std::vector<pid_t> found;
    EXPECT_TRUE(eventually([&] {
      found.clear();
      std::istringstream words(job.out());
      for (std::string word; words >> word;)
        if (word.find_first_not_of("0123456789") == std::string::npos)
          found.push_back(std::stoi(word));
      return found.size() == 6;
    }));
    return found;
  }
  static void expect_gone(const std::vector<pid_t>& processes) {
    for (const pid_t process : processes)
      EXPECT_TRUE(eventually([&] { return !is_alive(process); })) << process;
  }
};

TEST_F(Orphans, AreNotLeftWhenARankFails) {
  Process job(script({"-n", "2"}, kScript), {});
  const std::vector<pid_t> all = processes(job);
  kill(all[1], SIGKILL);
  EXPECT_EQ(job.wait().status, 128 + SIGKILL);
  expect_gone(all);
}

TEST_F(Orphans, AreNotLeftWhenTheJobIsInterrupted) {
  Process job(script({"-n", "2"}, kScript), {});
  const std::vector<pid_t> all = processes(job);
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait().status, 128 + SIGTERM);
  expect_gone(all);
}

TEST_F(Orphans, AreNotLeftWhenTheLauncherIsKilled) {
  Process job(script({"-n", "2"},
                     "sleep 1000 & echo $! $$; sh -c 'echo $$; exec sleep 1000' & "
                     "echo ready; wait"),
              {});
  const std::vector<pid_t> all = processes(job);
  job.kill(SIGKILL);
  job.wait();
  expect_gone(all);
}

TEST(Run, EndsWithItsRanks) {
  // A process that has left its rank's group keeps the pipe open.
  const Result result = run(script({}, "setsid sleep 1000 & echo started"));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "[0] started\n");
}

// A rank makes a file as Segment does, and is killed.
TEST(Run, RemovesTheSharedMemoryOfKilledRanks) {
  const Result result = run(script(
      {"-n", "1"},
      "f=/dev/shm/tandem-$(stat -L -c %i /proc/self/ns/pid)-$$-$(cut -d' ' -f22 /proc/$$/stat)-7b; "
      "touch $f; echo $f; kill -9 $$"));
  ASSERT_TRUE(contains(result.out, "/dev/shm/tandem-")) << result.out << result.err;
  const std::string file = result.out.substr(4, result.out.find('\n') - 4);
  EXPECT_FALSE(std::filesystem::exists(file)) << file;
}

TEST(Run, RanksFindEachOther) {
  const Result result = run({"run", "-n", "3", "--", TANDEM_RENDEZVOUS_PROGRAM});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (Words{"[0] rank 0 of 3: 012", "[1] rank 1 of 3: 012", "[2] rank 2 of 3: 012"}));
}

TEST(Run, TwoJobsRunIndependently) {
  Process first({"run", "-n", "3", "--", TANDEM_RENDEZVOUS_PROGRAM}, {});
  const Result second = run({"run", "-n", "2", "--", TANDEM_RENDEZVOUS_PROGRAM});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(first.wait().status, 0);
}

TEST(Run, ARankThatDiesIsNamedAsTheCause) {
  const Result died = run({"run", "-n", "3", "--", TANDEM_RENDEZVOUS_PROGRAM, "die", "1"});
  EXPECT_EQ(died.status, 128 + SIGKILL) << died.err;
  EXPECT_TRUE(contains(died.err, "[run] rank 1 (process ")) << died.err;
  EXPECT_TRUE(contains(died.err, "was killed by signal 9 (Killed)")) << died.err;
}

TEST(Run, RefusesBadOptionsInOneLine) {
  const auto refuse = [](Words options, const std::string& part,
                         const std::string& kind = "InvalidArgumentError") {
    expect_failure(run(script(std::move(options), "true")), kind, part);
  };
  refuse({"-n", "0"}, "--ranks: expected a whole number of at least 1, got '0'");
  refuse({"-n", "5000"}, "[run] expected -n of at most 4096, got 5000");
  refuse({"-n", "many"}, "--ranks: expected a whole number of at least 1, got 'many'");
  refuse({"-n", "99999999999"}, "--ranks");
  refuse({"--workers", "-1"}, "--workers: expected a whole number of at least 0, got '-1'");
  refuse({"-n", "2", "--workers", "2"}, "[run] expected either -n or --workers");
  refuse({"--bind", "socket"}, "[run] expected --bind none or core, got 'socket'");
  refuse({"--grace", "-1"}, "[run] expected --grace in [0, 86400] seconds, got -1");
  refuse({"--grace", "nan"}, "[run] expected --grace in [0, 86400] seconds, got nan");
  for (const char* address : {"h", "h:", ":1", "h:0", "h:65536"})
    refuse({"--rendezvous", address}, "[run] expected --rendezvous HOST:PORT, got '");
  refuse({"--hosts", ""}, "--hosts");
  refuse({"--hosts", "a:0"}, "[run] expected NAME:SLOTS with slots in [1, 4096], got 'a:0'");
  refuse({"--hosts", "a:"}, "[run] expected NAME:SLOTS, got 'a:'");
  refuse({"--hosts", ":2"}, "[run] expected a host name, got ':2'");
  refuse({"--hosts", "-oProxyCommand=x:2"}, "[run] expected a host name");
  refuse({"--hosts", "a:1,a:1"}, "[run] host 'a' is listed twice");
  refuse({"--hosts", "a:1,localhost:1"}, "[run] expected host names that all hosts can reach");
  refuse({"--hosts", "a:1,b:1", "-n", "3"},
         "[run] expected at least 3 slots for as many ranks, the hosts have 2");
  refuse({"--hosts", "a", "--hostfile", "b"}, "[run] expected either --hosts or --hostfile");
  refuse({"--hostfile", "/no/such/file"}, "[run] cannot read the host file '/no/such/file'",
         "NotFoundError");
  refuse({"--env", "=x"}, "[run] expected --env NAME or NAME=VALUE, got '=x'");
  refuse({"--env", "NO_SUCH_VARIABLE"}, "[run] --env NO_SUCH_VARIABLE: the variable is not set",
         "NotFoundError");
  refuse({"--wings"}, "--wings");
  expect_failure(run({"run", "-n", "2"}), "InvalidArgumentError",
                 "[run] expected a program after --");
  expect_failure(run({"run", "-n", "2", "--", "no-such-program"}), "NotFoundError",
                 "[run] cannot start 'no-such-program': No such file or directory");
  expect_failure(run({"run", "--", "/"}), "NotFoundError",
                 "[run] cannot start '/': Permission denied");
}

}  // namespace
}  // namespace tandem::run_test
