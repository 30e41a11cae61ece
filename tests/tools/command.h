// Runs the `tandem` command as a process, for tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"

namespace tandem::testing {

struct Result {
  int status = -1;  // the exit code, or -signal if a signal killed it
  std::string out, err;
};

// A process of `tandem` that runs until wait().
class Process {
 public:
  struct Options {
    std::vector<std::pair<std::string, std::string>> environment;
    rlim_t file_size_limit = RLIM_INFINITY;
    std::optional<rlimit> descriptor_limit{};
    bool ignores_ended_children = false;  // as if its parent ignored SIGCHLD
  };

  explicit Process(const std::vector<std::string>& arguments, const Options& options) {
    std::vector<char*> argv = {const_cast<char*>(TANDEM_COMMAND)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const std::string out = (files_ / "out").string(), err = (files_ / "err").string();
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if (options.file_size_limit != RLIM_INFINITY) {
      const rlimit limit{options.file_size_limit, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (options.ignores_ended_children) signal(SIGCHLD, SIG_IGN);
    if (options.descriptor_limit) setrlimit(RLIMIT_NOFILE, &*options.descriptor_limit);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(TANDEM_COMMAND, argv.data());
    _exit(127);
  }

  pid_t id() const { return pid_; }
  void kill(int signal = SIGKILL) const { ::kill(pid_, signal); }
  // The output so far.
  std::string out() const { return read_file(files_ / "out"); }
  std::string err() const { return read_file(files_ / "err"); }
  Result wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(files_ / "out"),
            read_file(files_ / "err")};
  }

 private:
  TemporaryDirectory files_;
  pid_t pid_ = -1;
};

inline Result run(const std::vector<std::string>& arguments, const Process::Options& options = {}) {
  return Process(arguments, options).wait();
}

// The arguments of a short training, and `more`.
inline std::vector<std::string> training(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"train", "--model",  "mlp", "--limit",
                                        "300",   "--epochs", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Expects exit code 2 and one line on stderr, "tandem: <start>...", that has `part`.
inline void expect_failure(const Result& result, const std::string& start,
                           const std::string& part) {
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.err.rfind("tandem: " + start + ": ", 0), 0u) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

}  // namespace tandem::testing
