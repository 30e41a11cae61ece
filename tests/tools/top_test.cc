// `tandem top`: the formats, and the states of real tasks.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "rpc/grpc/grpc_transport.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/grpc.h"
#include "support/waiting.h"
#include "tools/cluster_job.h"
#include "tools/command.h"
#include "top/formats.h"

namespace tandem::top_test {
namespace {

using distribute::TaskState;
using distribute::TaskStatus;
using namespace testing;
using namespace std::chrono_literals;

// --- formats ---

// A worker, a server, and a server that is gone, two seconds apart.
std::vector<tools::TaskView> views() {
  const auto start = std::chrono::steady_clock::time_point(100s);
  const std::vector<TaskStatus> before = {{.type = "worker",
                                           .address = "a:1",
                                           .answered = true,
                                           .time = start,
                                           .incarnation = 1,
                                           .closures = 10},
                                          {.type = "ps",
                                           .address = "b:2",
                                           .answered = true,
                                           .time = start,
                                           .incarnation = 2,
                                           .bytes_in = 1000,
                                           .updates = 100,
                                           .staleness_sum = 50},
                                          {.type = "ps", .index = 1, .address = "c:3"}};
  std::vector<TaskStatus> now = before;
  now[0].time = now[1].time = start + 2s;
  now[0].state = TaskState::kBusy;
  now[0].closures = 15;
  now[1].state = TaskState::kReady;
  now[1].bytes_in = 1000 + 2 * 1536;
  now[1].updates = 108;
  now[1].staleness_sum = 62;
  now[1].staleness_max = 7;
  now[1].variable_bytes = 4096;
  now[2].reason = "a \"quoted\" \\ reason";
  return tools::views_of(before, now);
}

TEST(TopFormats, LinesHaveTheSameKeysForEveryTask) {
  EXPECT_EQ(tools::lines_of(views(), 12.5),
            "time=12.500 task=worker:0 address=a:1 state=busy closures=15 closures_per_s=2.5 "
            "updates=0 updates_per_s=0.0 pushes_per_s=0.0 pulls_per_s=0.0 staleness_mean=- "
            "staleness_max=0 bytes_in_per_s=0.0 bytes_out_per_s=0.0 variable_bytes=0 "
            "reason=\"\"\n"
            "time=12.500 task=ps:0 address=b:2 state=ready closures=0 closures_per_s=0.0 "
            "updates=108 updates_per_s=4.0 pushes_per_s=0.0 pulls_per_s=0.0 staleness_mean=1.50 "
            "staleness_max=7 bytes_in_per_s=1536.0 bytes_out_per_s=0.0 variable_bytes=4096 "
            "reason=\"\"\n"
            "time=12.500 task=ps:1 address=c:3 state=gone closures=- closures_per_s=- updates=- "
            "updates_per_s=- pushes_per_s=- pulls_per_s=- staleness_mean=- staleness_max=- "
            "bytes_in_per_s=- bytes_out_per_s=- variable_bytes=- "
            "reason=\"a \\\"quoted\\\" \\\\ reason\"\n");
}

TEST(TopFormats, ARestartedTaskHasNoRates) {
  std::vector<TaskStatus> before = {
      {.type = "worker", .answered = true, .incarnation = 1, .closures = 10}};
  std::vector<TaskStatus> now = before;
  now[0].time += 1s;
  EXPECT_TRUE(tools::views_of(before, now)[0].rates);
  now[0].incarnation = 2;
  now[0].closures = 3;
  EXPECT_FALSE(tools::views_of(before, now)[0].rates);
  EXPECT_FALSE(tools::views_of({}, now)[0].rates);
}

TEST(TopFormats, TheColumnsOfTheTableAreAligned) {
  std::istringstream table(tools::table_of(views()));
  Words lines;
  for (std::string line; std::getline(table, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5u);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(lines[i].size(), lines[0].size()) << lines[i];
  EXPECT_TRUE(contains(lines[2], "1.5 KiB")) << lines[2];
  EXPECT_TRUE(contains(lines[2], "4.0 KiB")) << lines[2];
  EXPECT_EQ(lines[4], "ps:1 is gone: a \"quoted\" \\ reason");
}

// The samples of a text in Prometheus' format, by their names and labels. Each name has a type and
// a help text before its samples, and counters end in _total.
std::map<std::string, double> parse_prometheus(const std::string& text) {
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;
  std::string described;
  std::istringstream in(text);
  const std::regex help("# HELP ([a-z_]+) \\S.*"), type("# TYPE ([a-z_]+) (counter|gauge)"),
      sample("([a-z_]+)\\{([a-z]+=\"([^\"\\\\]|\\\\[\"\\\\n])*\",?)*\\} (\\S+)");
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (std::regex_match(line, found, help)) {
      described = found[1];
    } else if (std::regex_match(line, found, type)) {
      EXPECT_EQ(found[1], described);
      EXPECT_EQ(found[2] == "counter", std::string(found[1]).ends_with("_total")) << line;
      EXPECT_TRUE(types.emplace(found[1], found[2]).second) << line;
    } else if (std::regex_match(line, found, sample)) {
      EXPECT_EQ(found[1], described) << line;
      EXPECT_TRUE(types.contains(found[1])) << line;
      EXPECT_TRUE(samples.emplace(line.substr(0, line.rfind(' ')), std::stod(found[4])).second);
    } else {
      ADD_FAILURE() << "neither a comment nor a sample: " << line;
    }
  }
  EXPECT_TRUE(text.ends_with('\n'));
  return samples;
}

TEST(TopFormats, PrometheusHasTheNumbersOfTasksThatAnswer) {
  std::map<std::string, double> samples = parse_prometheus(tools::prometheus_of(views()));
  EXPECT_EQ(samples.at("tandem_worker_closures_total{job=\"worker\",task=\"0\"}"), 15);
  EXPECT_EQ(samples.at("tandem_server_updates_total{job=\"ps\",task=\"0\"}"), 108);
  EXPECT_EQ(samples.at("tandem_server_staleness_total{job=\"ps\",task=\"0\"}"), 62);
  EXPECT_EQ(samples.at("tandem_server_variable_bytes{job=\"ps\",task=\"0\"}"), 4096);
  EXPECT_EQ(samples.at("tandem_task_state{job=\"ps\",task=\"1\",state=\"gone\"}"), 1);
  EXPECT_EQ(samples.at("tandem_task_state{job=\"ps\",task=\"1\",state=\"ready\"}"), 0);
  EXPECT_FALSE(samples.contains("tandem_server_updates_total{job=\"ps\",task=\"1\"}"));
  EXPECT_FALSE(samples.contains("tandem_worker_closures_total{job=\"ps\",task=\"0\"}"));
}

// --- real tasks ---

// The values of the last line of each task.
std::map<std::string, std::map<std::string, std::string>> parse_lines(const std::string& text) {
  std::map<std::string, std::map<std::string, std::string>> tasks;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::map<std::string, std::string> values;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (const auto at = word.find('='); at != std::string::npos)
        values[word.substr(0, at)] = word.substr(at + 1);
    tasks[values["task"]] = values;
  }
  return tasks;
}

class TopOfCluster : public testing::GrpcTest {
 protected:
  // `timeout`: how long a task may take to answer, in seconds. Only stopped tasks should be late.
  Words top(const Words& more, const std::string& timeout = "60") const {
    const std::string process = std::to_string(job_.processes("chief:0").back().process);
    Words words = {"top", "--process", process, "--interval", "0.1", "--timeout", timeout};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::map<std::string, std::map<std::string, std::string>> once(
      const std::string& timeout = "60") const {
    const Result result = run(top({"--once", "--format", "lines"}, timeout));
    EXPECT_EQ(result.status, 0) << result.err;
    return parse_lines(result.out);
  }
  static bool serves(const std::string& state) { return state == "ready" || state == "busy"; }
  pid_t process(const std::string& task) const { return job_.processes(task).back().process; }
  void end_job() {
    write_file(folder_ / "stop", "");
    EXPECT_EQ(job_.process().wait().status, 0);
  }

  TemporaryDirectory folder_;
  ClusterJob job_{cluster_options(), {TANDEM_CLUSTER_PROGRAM, (folder_ / "stop").string()}};
};

TEST_F(TopOfCluster, TasksShowTheirRates) {
  job_.make_progress();
  // Each closure of either worker updates a variable on each server.
  std::map<std::string, std::map<std::string, std::string>> tasks;
  const auto rate = [&](const char* task, const char* name) {
    return std::stod(tasks[task][name]);
  };
  EXPECT_TRUE(eventually([&] {
    tasks = once();
    return rate("worker:0", "closures_per_s") > 0 && rate("worker:0", "bytes_out_per_s") > 0 &&
           rate("worker:1", "closures_per_s") > 0 && rate("ps:0", "updates_per_s") > 0 &&
           rate("ps:1", "updates_per_s") > 0 && rate("ps:1", "bytes_in_per_s") > 0;
  }));
  EXPECT_EQ(tasks.size(), 5u);
  EXPECT_EQ(tasks["chief:0"]["state"], "ready");
  for (const char* server : {"ps:0", "ps:1"}) {
    EXPECT_GE(std::stod(tasks[server]["updates"]), 200);
    EXPECT_GE(std::stod(tasks[server]["variable_bytes"]), 8);
  }
  end_job();
}

TEST_F(TopOfCluster, AStoppedTaskIsLateUntilItContinues) {
  job_.make_progress();
  const pid_t worker = process("worker:1");
  kill(worker, SIGSTOP);
  EXPECT_TRUE(eventually([&] {
    auto tasks = once("2");
    EXPECT_EQ(tasks["worker:1"]["state"], "late");
    return serves(tasks["worker:0"]["state"]) && tasks["ps:0"]["state"] == "ready";
  }));
  kill(worker, SIGCONT);
  EXPECT_TRUE(eventually([&] { return serves(once()["worker:1"]["state"]); }));
  end_job();
}

TEST_F(TopOfCluster, AKilledTaskIsGoneUntilItIsRestarted) {
  job_.make_progress();
  Process view(top({"--format", "lines"}), {});
  ASSERT_TRUE(eventually([&] { return contains(view.out(), "task=ps:1 "); })) << view.err();
  job_.kill_task("ps:1");
  const auto seen = [&](const std::string& state) {
    return eventually([&] { return parse_lines(view.out())["ps:1"]["state"] == state; });
  };
  EXPECT_TRUE(seen("ready")) << view.out() << view.err();
  EXPECT_TRUE(std::regex_search(view.out(), std::regex("task=ps:1 \\S+ state=gone"))) << view.out();
  view.kill();
  view.wait();
  end_job();
}

TEST_F(TopOfCluster, AnotherTokenShowsNothing) {
  job_.make_progress();
  const Result result = run({"top", "--once", "--worker", job_.processes("worker:0").back().address,
                             "--ps", job_.processes("ps:1").back().address},
                            {.environment = {{"TANDEM_JOB_TOKEN", "a guess"}}});
  expect_failure(result, "FailedPreconditionError", "the token is not that of this job");
  EXPECT_EQ(result.out, "");
  end_job();
}

TEST_F(TopOfCluster, AFileIsReplacedByMetrics) {
  job_.make_progress();
  const std::string file = (folder_ / "metrics.prom").string();
  write_file(file, "old");
  const Result result = run(top({"--once", "--format", "prometheus", "--output", file}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const auto samples = parse_prometheus(read_file(file));
  EXPECT_GT(samples.at("tandem_server_updates_total{job=\"ps\",task=\"1\"}"), 0);
  end_job();
}

TEST(Top, TasksThatDoNotListenAreGone) {
  TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
  const auto start = std::chrono::steady_clock::now();
  const Result result = run({"top", "--once", "--format", "lines", "--interval", "0.1", "--chief",
                             "127.0.0.1:1", "--worker", "127.0.0.1:2", "--ps", "127.0.0.1:3"},
                            {.environment = {{"TANDEM_JOB_TOKEN", "secret"}}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  auto tasks = parse_lines(result.out);
  ASSERT_EQ(tasks.size(), 3u);
  for (auto& [name, values] : tasks) EXPECT_EQ(values["state"], "gone") << name;
}

TEST(Top, RefusesBadOptions) {
  const auto refuse = [](const Words& more, const std::string& part) {
    Words words = {"top", "--once"};
    words.insert(words.end(), more.begin(), more.end());
    expect_failure(run(words, {.environment = {{"TF_CONFIG", ""}}}), "InvalidArgumentError", part);
  };
  refuse({}, "[top] expected a cluster: --worker and --ps, --process, or the environment");
  refuse({"--worker", "a:1", "--process", "1"}, "[top] expected addresses or --process, got both");
  refuse({"--worker", "a:1", "--interval", "0"}, "[top] expected --interval in [0.001, 86400]");
  refuse({"--worker", "a:1", "--timeout", "nan"}, "[top] expected --timeout in [0.001, 86400]");
  refuse({"--worker", "a", "--ps", "127.0.0.1:1"},
         "[cluster] expected HOST:PORT or unix:/PATH as the address of");
  expect_failure(run({"top", "--once", "--process", "2147483647"}), "NotFoundError",
                 "[top] cannot read the environment of process 2147483647");
}

}  // namespace
}  // namespace tandem::top_test
