// `tandem top`: shows what the tasks of a cluster are doing.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include "commands.h"
#include "files.h"
#include "programs.h"
#include "tandem/cluster_status.h"
#include "tandem/errors.h"
#include "top/formats.h"

namespace tandem::tools {
namespace {

using distribute::ClusterMonitor;
using distribute::ClusterSpec;
using distribute::TaskStatus;

struct Options {
  std::vector<std::string> chief, workers, servers;
  std::optional<int> process;  // not given: this process's environment
  bool once = false;
  double interval = 2.0, timeout = 2.0;  // seconds
  std::string format;                    // empty: table on a terminal, else lines
  std::string output, root_certificate;
};

std::chrono::milliseconds milliseconds_of(double seconds, const char* option) {
  if (!(seconds >= 0.001) || seconds > 86'400.0)
    throw InvalidArgumentError(
        fmt::format("[top] expected {} in [0.001, 86400] seconds, got {}", option, seconds));
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e3)));
}

// Takes over the settings of a task, so that its cluster is found.
void take_environment_of(int process) {
  const std::array kNames = {"TF_CONFIG", "TANDEM_JOB_TOKEN", "TANDEM_TLS"};
  for (const char* name : kNames) unsetenv(name);
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  for (std::string variable; std::getline(file, variable, '\0');)
    for (const std::string name : kNames)
      if (variable.starts_with(name + "="))
        setenv(name.c_str(), variable.c_str() + name.size() + 1, 1);
  if (!file.eof())
    throw NotFoundError(fmt::format("[top] cannot read the environment of process {}", process));
}

ClusterSpec cluster_of(const Options& options) {
  ClusterSpec cluster;
  for (const auto& [type, addresses] :
       {std::pair{"chief", &options.chief}, std::pair{"worker", &options.workers},
        std::pair{"ps", &options.servers}})
    if (!addresses->empty()) cluster[type] = *addresses;
  if (!cluster.empty() && options.process)
    throw InvalidArgumentError("[top] expected addresses or --process, got both");
  if (options.process) take_environment_of(*options.process);
  if (cluster.empty()) cluster = distribute::TFConfigClusterResolver().cluster_spec();
  if (cluster.empty())
    throw InvalidArgumentError(
        "[top] expected a cluster: --worker and --ps, --process, or the environment variable "
        "TF_CONFIG");
  return cluster;
}

class Top {
 public:
  explicit Top(const Options& options)
      : options_(options),
        interval_(milliseconds_of(options.interval, "--interval")),
        monitor_(cluster_of(options),
                 {.security = {.root_certificate_file = options.root_certificate},
                  .limit = milliseconds_of(options.timeout, "--timeout")}) {
    const bool in_place = options.output.empty() && isatty(STDOUT_FILENO) && !options.once;
    if (options_.format.empty()) options_.format = in_place ? "table" : "lines";
    in_place_ = in_place && options_.format == "table";
  }

  // Rates need two answers, so the first ones are shown after an interval.
  void run() {
    auto next = std::chrono::steady_clock::now();
    std::vector<TaskStatus> before = monitor_.poll();
    do {
      next = std::max(next + interval_, std::chrono::steady_clock::now());
      std::this_thread::sleep_until(next);
      std::vector<TaskStatus> now = monitor_.poll();
      show(views_of(before, now));
      before = std::move(now);
    } while (!options_.once && std::cout);
  }

 private:
  void show(const std::vector<TaskView>& views) const {
    const std::string text = text_of(views);
    if (!options_.output.empty()) {
      replace_file(options_.output, text, "[top] cannot write '" + options_.output + "'");
      return;
    }
    // Moves the cursor to the top left corner, and clears the previous table.
    if (in_place_) std::cout << "\033[H\033[2J";
    std::cout << text << std::flush;
  }

  std::string text_of(const std::vector<TaskView>& views) const {
    if (options_.format == "table") return table_of(views);
    if (options_.format == "prometheus") return prometheus_of(views);
    const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
    return lines_of(views, time.count());
  }

  Options options_;
  const std::chrono::milliseconds interval_;
  bool in_place_ = false;
  ClusterMonitor monitor_;
};

}  // namespace

void add_top_command(Command program) {
  const auto options = std::make_shared<Options>();
  Command command = program.command(kTop.command, kTop.help);
  command.option("--chief", options->chief, "HOST:PORT of the chief").comma_separated();
  command
      .option("--worker", options->workers,
              "HOST:PORT of each worker, comma-separated (default: the cluster of TF_CONFIG)")
      .comma_separated();
  command.option("--ps", options->servers, "HOST:PORT of each parameter server, comma-separated")
      .comma_separated();
  command
      .option("--process", options->process,
              "Process of a task on this host, whose cluster and token are used")
      .at_least(1);
  command.flag("--once", options->once, "Show one interval");
  command.option("--interval", options->interval, "Seconds from one answer to the next");
  command.option("--timeout", options->timeout, "Seconds after which a missing answer is late");
  command
      .option("--format", options->format,
              "table, lines or prometheus (default: a table on a terminal, else lines)")
      .one_of({"table", "lines", "prometheus"});
  command.option("--output", options->output,
                 "File that is replaced at each interval (default: stdout)");
  command.option("--root-certificate", options->root_certificate,
                 "PEM file that the tasks' certificates are checked with (default: as TANDEM_TLS "
                 "says)");
  command.runs([options] { Top(*options).run(); });
}

}  // namespace tandem::tools
