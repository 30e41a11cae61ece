// Jobs of `tandem run` with parameter servers, whose tasks are killed.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "support/waiting.h"
#include "tools/command.h"
#include "tools/run_job.h"

namespace tandem::testing {

// The options of a cluster with 2 workers and 2 servers, and `more`.
inline Words cluster_options(const Words& more = {}) {
  Words options = {"--chief", "--workers", "2", "--ps", "2", "--bind", "none"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// A job of a program each of whose tasks prints "process PID at ADDRESS", and the chief "finished
// N" from time to time.
class ClusterJob {
 public:
  ClusterJob(const Words& options, const Words& program) { start(options, program); }

  struct Task {
    pid_t process = 0;
    std::string address;
  };
  // The processes that a task has had so far.
  std::vector<Task> processes(const std::string& task) const {
    const std::string out = process_->out();
    const std::regex line("\\[" + task + "\\] process ([0-9]+) at (\\S+)\n");
    std::vector<Task> found;
    for (std::sregex_iterator each(out.begin(), out.end(), line), end; each != end; ++each)
      found.push_back({std::stoi((*each)[1]), (*each)[2]});
    return found;
  }
  int finished() const {
    const std::string out = process_->out();
    const std::string word = "[chief:0] finished ";
    const auto at = out.rfind(word);
    return at == std::string::npos ? 0 : std::atoi(out.c_str() + at + word.size());
  }
  // Waits until `more` further closures have finished.
  void make_progress(int more = 200) const {
    const int before = finished();
    ASSERT_TRUE(eventually([&] { return finished() >= before + more; })) << process_->err();
  }
  // Kills a task, unless it was killed and has not been restarted yet. Returns whether it did.
  bool kill_now(const std::string& task, int signal = SIGKILL) {
    const std::vector<Task> all = processes(task);
    if (all.size() == killed_[task]) return false;
    killed_[task] = all.size();
    ::kill(all.back().process, signal);
    return true;
  }
  // Kills a task, and waits until it has been restarted.
  void kill_task(const std::string& task, int signal = SIGKILL) {
    const std::vector<Task> before = processes(task);
    ASSERT_TRUE(kill_now(task, signal)) << process_->out();
    ASSERT_TRUE(eventually([&] { return processes(task).size() == before.size() + 1; }))
        << process_->err();
    EXPECT_EQ(processes(task).back().address, before.back().address);
  }
  Process& process() { return *process_; }

 protected:
  ClusterJob() = default;
  void start(const Words& options, const Words& program) {
    Words arguments = {"run"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back("--");
    arguments.insert(arguments.end(), program.begin(), program.end());
    process_.emplace(arguments, Process::Options{.environment = {{"OMP_NUM_THREADS", "1"}}});
  }

 private:
  std::optional<Process> process_;
  std::map<std::string, std::size_t> killed_;
};

}  // namespace tandem::testing
