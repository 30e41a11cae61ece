// `tandem run` over several hosts, with a script instead of ssh that runs the command on this
// machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <sstream>
#include <thread>

#include "support/files.h"
#include "support/waiting.h"
#include "tools/command.h"
#include "tools/run_job.h"

namespace tandem::run_hosts_test {
namespace {

using namespace testing;
using namespace std::chrono_literals;

class Hosts : public ::testing::Test {
 protected:
  // Hosts 127.0.0.2, 127.0.0.3, ... are names of this machine that only the script knows.
  Hosts() {
    write_file(folder_ / "ssh", "#!/bin/sh\necho \"$1\" >>" + (folder_ / "hosts").string() +
                                    "\necho $$ >" + (folder_ / "ssh.$1").string() +
                                    "\necho Welcome to $1\nshift\nexec sh -c \"$*\"\n");
    std::filesystem::permissions(folder_ / "ssh", std::filesystem::perms::owner_all);
  }
  // Replaces the script; its first argument is the host's name.
  void write_shell(const std::string& commands) const {
    write_file(folder_ / "ssh", "#!/bin/sh\n" + commands + "\n");
  }
  Words over(const std::string& hosts, Words more) const {
    Words all = {"run", "--ssh", (folder_ / "ssh").string(), "--hosts", hosts};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  TemporaryDirectory folder_;
};

TEST_F(Hosts, EachRunTheirRanks) {
  const Result result = run(
      over("127.0.0.2:2,127.0.0.3:2",
           {"-n", "3", "--", "sh", "-c",
            "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR; echo error >&2"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (Words{"[0] 0 0 3 2 127.0.0.2", "[1] 1 1 3 2 127.0.0.2", "[2] 2 0 3 1 127.0.0.2"}));
  EXPECT_EQ(sorted_lines(result.err), (Words{"[0] error", "[1] error", "[2] error"}));
  EXPECT_EQ(sorted_lines(testing::read_file(folder_ / "hosts")), (Words{"127.0.0.2", "127.0.0.3"}));
}

TEST_F(Hosts, MayIncludeThisHost) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
  for (const std::string& hosts :
       {std::string(own) + ":1,127.0.0.2:2", "127.0.0.2:1," + std::string(own) + ":2"}) {
    const Result result =
        run(over(hosts, {"--", "sh", "-c", "echo $RANK $LOCAL_RANK; setsid sleep 1000 &"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(sorted_lines(result.out).size(), 3u) << result.out;
  }
  // 127.0.0.1 is this host, which needs no ssh.
  EXPECT_EQ(sorted_lines(testing::read_file(folder_ / "hosts")), (Words{"127.0.0.2", "127.0.0.2"}));
}

TEST_F(Hosts, AreReadFromAFile) {
  write_file(folder_ / "list", "# ours\n127.0.0.2 slots=1\n\n127.0.0.3:2  # two\n127.0.0.4\n");
  const Result result =
      run({"run", "--ssh", (folder_ / "ssh").string(), "--hostfile", (folder_ / "list").string(),
           "--", "sh", "-c", "echo $RANK $LOCAL_RANK"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (Words{"[0] 0 0", "[1] 1 0", "[2] 2 1", "[3] 3 0"}));
  write_file(folder_ / "list", "127.0.0.2 two\n");
  expect_failure(run({"run", "--hostfile", (folder_ / "list").string(), "--", "true"}),
                 "InvalidArgumentError", "expected NAME slots=SLOTS, got '127.0.0.2 two'");
}

TEST_F(Hosts, ReceiveTheTokenInSecret) {
  const Result result = run(over("127.0.0.2:2,127.0.0.3:1", {"--", TANDEM_RENDEZVOUS_PROGRAM}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (Words{"[0] rank 0 of 3: 012", "[1] rank 1 of 3: 012", "[2] rank 2 of 3: 012"}));
  const Result listing =
      run(over("127.0.0.2:1", {"--", "sh", "-c", "ps -eo args | grep -c $TANDEM_JOB_TOKEN"}));
  EXPECT_EQ(listing.out, "[0] 1\n") << "the grep itself alone";
}

// The server is in the launcher's process; each host gets an address by which it can reach it.
TEST_F(Hosts, ReceiveTheAddressOfTheServer) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
  const Result result = run(over(std::string(own) + ":1,127.0.0.2:1,no.such.host.invalid:1",
                                 {"--", "sh", "-c", "echo $TANDEM_RENDEZVOUS"}));
  EXPECT_EQ(result.status, 0) << result.err;
  const Words addresses = sorted_lines(result.out);
  ASSERT_EQ(addresses.size(), 3u);
  const std::string port = addresses[0].substr(addresses[0].rfind(':'));
  EXPECT_EQ(addresses, (Words{"[0] 127.0.0.1" + port, "[1] 127.0.0.1" + port,
                              "[2] " + std::string(own) + port}));
}

TEST_F(Hosts, ForwardTheEnvironment) {
  const Result result =
      run(over("127.0.0.2:1,127.0.0.3:1", {"--env", "GREETING=hello 'you'", "--env", "HOME", "--",
                                           "sh", "-c", "echo $GREETING; [ -n \"$HOME\" ]"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (Words{"[0] hello 'you'", "[1] hello 'you'"}));
}

TEST_F(Hosts, AFailureOnOneTerminatesTheJobOnAll) {
  const Result result = run(over(
      "127.0.0.2:1,127.0.0.3:2",
      {"--", "sh", "-c", "if [ $RANK = 2 ]; then echo no luck >&2; exit 9; fi; exec sleep 1000"}));
  EXPECT_EQ(result.status, 9);
  EXPECT_TRUE(contains(result.err, "[2] no luck\n")) << result.err;
  EXPECT_TRUE(contains(result.err, " on 127.0.0.3) exited with code 9")) << result.err;
}

TEST_F(Hosts, SignalsReachAll) {
  Process job(over("127.0.0.2:1,127.0.0.3:1", {"--", "sh", "-c",
                                               "trap 'echo term; exit 0' TERM; echo ready; "
                                               "while true; do sleep 0.02; done"}),
              {});
  ASSERT_TRUE(eventually([&] { return sorted_lines(job.out()).size() == 2; }));
  job.kill(SIGTERM);
  const Result result = job.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (Words{"[0] ready", "[0] term", "[1] ready", "[1] term"}));
}

TEST_F(Hosts, ALostHostTerminatesTheJob) {
  Process job(over("127.0.0.2:1,127.0.0.3:1", {"--", "sh", "-c", "echo $$; exec sleep 1000"}), {});
  ASSERT_TRUE(eventually([&] { return sorted_lines(job.out()).size() == 2; }));
  kill(std::stoi(testing::read_file(folder_ / "ssh.127.0.0.3")), SIGKILL);
  const Result result = job.wait();
  EXPECT_EQ(result.status, 255);
  EXPECT_TRUE(contains(result.err, "[run] rank 1 is lost: the connection to 127.0.0.3 was closed"))
      << result.err;
  for (const std::string& line : sorted_lines(result.out)) {
    const pid_t process = std::stoi(line.substr(4));
    EXPECT_TRUE(eventually([&] { return kill(process, 0) != 0; })) << line;
  }
}

TEST_F(Hosts, UnreachableHostsAreNamed) {
  expect_failure(run({"run", "--ssh", "false", "--hosts", "far:1,away:1", "--", "true"}),
                 "UnavailableError",
                 "[run] far: `tandem agent` did not answer: the connection was closed");
  expect_failure(run(over("127.0.0.2:1,127.0.0.3:1", {"--", "no-such-program"})), "NotFoundError",
                 "[run] 127.0.0.2: [run] cannot start 'no-such-program'");
  const Result result = run(over("127.0.0.2:1", {"--remote-command", "/no/tandem", "--", "true"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.err, "[run] 127.0.0.2: `tandem agent` did not answer"));
}

// Sends more than a pipe can hold to an agent that does not read.
TEST_F(Hosts, AHostThatStopsReadingDoesNotBlockTheLauncher) {
  write_shell("echo tandem-agent 2; read line; echo P 1 2 3; exec sleep 1000");
  expect_failure(run(over("far:2", {"--start-timeout", "1", "--env",
                                    "LONG=" + std::string(100'000, 'x'), "--", "true"})),
                 "UnavailableError",
                 "[run] far: `tandem agent` did not answer within 1 s (--start-timeout)");
}

TEST_F(Hosts, AnInterruptDuringTheStartTerminatesTheJob) {
  write_shell("echo there >" + (folder_ / "asked").string() + "; exec sleep 1000");
  Process job(over("far:1", {"--start-timeout", "1000", "--", "true"}), {});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder_ / "asked"); }));
  job.kill(SIGINT);
  EXPECT_EQ(job.wait().status, 130);
}

// Linux does not start programs with a variable of more than 128 KiB.
TEST_F(Hosts, NamesTooLongForTfConfigAreRefused) {
  write_shell("shift; exec sh -c \"$*\"");
  const std::string host(50'000, 'h');
  const Words report = {"--", "sh", "-c", "echo $RANK $WORLD_SIZE ${TF_CONFIG:-none}"};
  Words ranks = {"-n", "3"}, tasks = {"--chief", "--workers", "1", "--ps", "1"};
  ranks.insert(ranks.end(), report.begin(), report.end());
  tasks.insert(tasks.end(), report.begin(), report.end());
  const Result result = run(over(host + ":3", ranks));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (Words{"[0] 0 3 none", "[1] 1 3 none", "[2] 2 3 none"}));
  expect_failure(run(over(host + ":3", tasks)), "ResourceExhaustedError",
                 "[run] TF_CONFIG with the addresses of 3 tasks takes 150");
}

}  // namespace
}  // namespace tandem::run_hosts_test
