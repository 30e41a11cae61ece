// Plans the ranks of `tandem run`: their hosts and their environments.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::tools {

struct RunOptions {
  std::optional<int> ranks;
  std::optional<std::string> hosts, host_file;    // h1:2,h2:2; or one host per line
  std::optional<int> workers, parameter_servers;  // these and the next set TF_CONFIG
  bool chief = false, evaluator = false;
  std::string bind = "core";  // or "none"
  std::string output;         // a directory; empty: stdout and stderr
  // Runs a command on a remote host. These options make ssh close a connection that does not
  // answer.
  std::string ssh =
      "ssh -T -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 "
      "-o ServerAliveCountMax=3";
  std::string remote_command;            // path of `tandem` there; empty: the same as here
  std::optional<int> max_restarts;       // of each task that serves
  std::optional<std::string> snapshots;  // directory of the parameter servers' snapshots
  bool no_tls = false;                   // between the tasks
  std::vector<std::string> environment;  // NAME=VALUE, or NAME to copy its value
  double grace = 10.0;                   // seconds from SIGTERM to SIGKILL
  double start_timeout = 60.0;           // seconds to wait for each answer of a host
  std::string rendezvous;                // HOST:PORT of a running server; empty: start one
  std::vector<std::string> program;
};

struct HostSlots {
  std::string name;
  int slots = 1;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

struct TfConfigTask {
  std::string type = "worker";
  int index = 0;
};

struct PlannedRank {
  int rank = 0, local_rank = 0, local_size = 1;
  std::size_t host = 0;  // index
  TfConfigTask task;
  std::string label;  // prefix of its lines
  // A worker or server of a chief. It runs until the others have ended, and is restarted if it
  // fails.
  bool serves = false;
};

struct JobPlan {
  std::vector<HostSlots> hosts;
  std::vector<PlannedRank> ranks;
  bool alike = true;     // no TF_CONFIG tasks: every rank has the same role
  bool servers = false;  // there are parameter servers
  bool one_host() const { return hosts.size() == 1; }
};

// These throw InvalidArgumentError or NotFoundError, naming the option.
std::vector<HostSlots> parse_hosts(const std::string& text);
std::vector<HostSlots> read_host_file(const std::string& path);
JobPlan make_job_plan(const RunOptions& options);

// Whether `name` is this host, whose ranks need no ssh.
bool is_this_host(const std::string& name);

// The addresses of a job, known once ports have been reserved.
struct Addresses {
  std::vector<std::string> hosts;  // by host: the name by which the others reach it
  std::vector<std::string> tasks;  // by rank, for TF_CONFIG
  int master_port = 0;
  std::vector<std::string> rendezvous;  // by host: HOST:PORT of the job's server
};
// The environment variables of a rank, in addition to inherited ones.
Environment environment_of(const JobPlan& plan, const PlannedRank& rank, const Addresses& addresses,
                           const std::string& token);
// The environment variables of --env.
Environment user_environment(const RunOptions& options);

}  // namespace tandem::tools
