// The rendezvous server of a job outside of its ranks: in `tandem run`, or as `tandem rendezvous`.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <regex>
#include <string>

#include "support/files.h"
#include "support/waiting.h"
#include "tools/command.h"
#include "tools/run_job.h"

namespace tandem::job_server_test {
namespace {

using namespace testing;

// The job's server is in the launcher, so that the others learn of rank 0's death as of any
// other's. They ignore the SIGTERM that ends the job, and print the error.
TEST(JobServer, OutlivesRankZero) {
  const Result died =
      run(script({"-n", "3", "--grace", "100"},
                 std::string("trap '' TERM; exec ") + TANDEM_RENDEZVOUS_PROGRAM + " die 0"));
  EXPECT_EQ(died.status, 128 + SIGKILL) << died.err;
  EXPECT_TRUE(contains(died.err, "[run] rank 0 (process ")) << died.err;
  for (const char* rank : {"1", "2"})
    EXPECT_TRUE(std::regex_search(
        died.err, std::regex(std::string("\\[") + rank +
                             "\\] UnavailableError: \\[membership\\] rank 0 \\(process [0-9]+ on "
                             "[^)]+\\) is gone: its connection closed without goodbye\n")))
        << died.err;
}

// Ranks that ignore the SIGTERM after a failure learn of it, too.
TEST(JobServer, TellsRanksThatAnotherHasEndedWithoutJoining) {
  for (const std::string end : {"exit 0", "exit 3", "kill -KILL $$"}) {
    const TemporaryDirectory folder;
    const std::string ready = folder.path().string() + "/";
    const std::string ends =
        "while ! test -e " + ready + "0 -a -e " + ready + "2; do sleep 0.01; done; " + end;
    const Result result =
        run(script({"-n", "3", "--grace", "100"}, "trap '' TERM; : >" + ready +
                                                      "$RANK; if test $RANK = 1; then " + ends +
                                                      "; fi; exec " + TANDEM_RENDEZVOUS_PROGRAM));
    EXPECT_NE(result.status, 0);
    for (const char* rank : {"0", "2"})
      EXPECT_TRUE(contains(result.err, std::string("[") + rank +
                                           "] UnavailableError: [membership] rank 1 is gone: its "
                                           "process ended before it had joined the job\n"))
          << end << ": " << result.err;
  }
}

TEST(JobServer, LetsRanksRendezvousRepeatedly) {
  const std::string program = TANDEM_RENDEZVOUS_PROGRAM;
  const Result result = run(script({"-n", "3"}, program + "; " + program + "; exec " + program));
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* line :
       {"[0] rank 0 of 3: 012\n", "[1] rank 1 of 3: 012\n", "[2] rank 2 of 3: 012\n"}) {
    std::size_t count = 0;
    for (auto at = result.out.find(line); at != std::string::npos;
         at = result.out.find(line, at + 1))
      ++count;
    EXPECT_EQ(count, 3u) << result.out;
  }
}

// The descriptors of the launcher's server, and its raised limit, are not inherited by ranks.
TEST(JobServer, LeaksNoDescriptorsToRanks) {
  const Result result = run(script({}, "for f in /proc/$$/fd/*; do readlink $f; done; ulimit -Sn"),
                            {.descriptor_limit = rlimit{64, 4096}});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* kind : {"socket:", "eventfd", "eventpoll"})
    EXPECT_FALSE(contains(result.out, kind)) << result.out;
  EXPECT_TRUE(contains(result.out, "[0] /dev/null\n")) << result.out;  // they were listed
  EXPECT_TRUE(contains(result.out, "[0] 64\n")) << result.out;
}

TEST(JobServer, RaisesItsLimitOfDescriptorsToTheMaximum) {
  const Words job = script({"-n", "40"}, "true");
  EXPECT_EQ(run(job, {.descriptor_limit = rlimit{64, 4096}}).status, 0);
  expect_failure(run(job, {.descriptor_limit = rlimit{64, 64}}), "ResourceExhaustedError",
                 "[rendezvous] the host of a job of 40 ranks needs about 234 open files and "
                 "sockets, but this process may have 64 (RLIMIT_NOFILE)");
}

// A `tandem rendezvous` that the ranks of a `tandem run` use.
class RendezvousCommand : public ::testing::Test {
 protected:
  // Waits until the server listens, and returns its address.
  static std::string address_of(const Process& server) {
    std::smatch parts;
    std::string out;
    EXPECT_TRUE(eventually([&] {
      out = server.out();
      return std::regex_match(out, parts, std::regex("TANDEM_RENDEZVOUS=(.*:[0-9]+)\n"));
    })) << server.err();
    return parts[1];
  }
  const Process::Options options_ = {.environment = {{"TANDEM_JOB_TOKEN", "secret"}}};
};

TEST_F(RendezvousCommand, ServesAJobUntilItHasEnded) {
  for (const char* address : {"127.0.0.1", "0.0.0.0"}) {
    Process server({"rendezvous", "--ranks", "3", "--address", address}, options_);
    const Result result =
        run({"run", "-n", "3", "--rendezvous", address_of(server), "--", TANDEM_RENDEZVOUS_PROGRAM},
            options_);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(sorted_lines(result.out),
              (Words{"[0] rank 0 of 3: 012", "[1] rank 1 of 3: 012", "[2] rank 2 of 3: 012"}));
    const Result ended = server.wait();
    EXPECT_EQ(ended.status, 0) << ended.err;
  }
}

TEST_F(RendezvousCommand, EndsWithTheFirstFailureOfAJob) {
  Process server({"rendezvous", "--ranks", "2"}, options_);
  run({"run", "-n", "2", "--rendezvous", address_of(server), "--", TANDEM_RENDEZVOUS_PROGRAM,
       "fail", "0"},
      options_);
  expect_failure(server.wait(), "AbortedError", "aborted: as requested");
}

TEST_F(RendezvousCommand, NamesTheRanksThatDoNotJoin) {
  expect_failure(run({"rendezvous", "--ranks", "2", "--join-timeout", "0.2"}, options_),
                 "DeadlineExceededError",
                 "[rendezvous] ranks 0, 1 of 2 did not join within 200 ms");
}

TEST_F(RendezvousCommand, RefusesBadOptionsInOneLine) {
  const auto refuse = [&](Words options, const std::string& part,
                          const std::string& kind = "InvalidArgumentError") {
    options.insert(options.begin(), "rendezvous");
    expect_failure(run(options), kind, part);
  };
  refuse({}, "--ranks is required");
  refuse({"--ranks", "0"}, "--ranks: expected a whole number of at least 1, got '0'");
  refuse({"--ranks", "2", "--port", "70000"}, "[rendezvous] expected --port in [0, 65535]");
  refuse({"--ranks", "2", "--join-timeout", "nan"}, "[rendezvous] expected --join-timeout in (0,");
  refuse({"--ranks", "2", "--address", "0.0.0.0"}, "set the environment variable TANDEM_JOB_TOKEN",
         "FailedPreconditionError");
  expect_failure(run(script({"--rendezvous", "h:1"}, "true")), "FailedPreconditionError",
                 "[run] --rendezvous: set the environment variable TANDEM_JOB_TOKEN");
}

}  // namespace
}  // namespace tandem::job_server_test
