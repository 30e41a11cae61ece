// Which ranks `tandem run` starts, where, and what their environments say.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::tools {

struct RunOptions {
  std::optional<int> ranks;
  std::optional<std::string> hosts, host_file;    // h1:2,h2:2; or a line a host
  std::optional<int> workers, parameter_servers;  // with these or the next, tasks of TF_CONFIG
  bool chief = false, evaluator = false;
  std::string bind = "core";  // or none
  std::string output;         // a directory; empty: stdout and stderr
  // The command that runs another on a host. ssh itself closes a connection that does not answer.
  std::string ssh =
      "ssh -T -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 "
      "-o ServerAliveCountMax=3";
  std::string remote_command;            // `tandem` there; empty: where it is here
  std::vector<std::string> environment;  // NAME=VALUE, or NAME to pass on
  double grace = 10.0;                   // seconds from SIGTERM to SIGKILL
  double start_timeout = 60.0;           // seconds that a host has for each answer
  std::string rendezvous;                // HOST:PORT of a server; empty: one in this process
  std::vector<std::string> program;
};

struct HostSlots {
  std::string name;
  int slots = 1;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Task {
  std::string type = "worker";
  int index = 0;
};

struct PlannedRank {
  int rank = 0, local_rank = 0, local_size = 1;
  std::size_t host = 0;  // index
  Task task;
  std::string label;    // before its lines
  bool serves = false;  // a parameter server: runs until the others are through
};

struct Plan {
  std::vector<HostSlots> hosts;
  std::vector<PlannedRank> ranks;
  bool alike = true;  // ranks, and no tasks of TF_CONFIG
  bool one_host() const { return hosts.size() == 1; }
};

// Throw InvalidArgumentError or NotFoundError that name the option.
std::vector<HostSlots> parse_hosts(const std::string& text);
std::vector<HostSlots> read_host_file(const std::string& path);
Plan make_plan(const RunOptions& options);

// Whether ranks on this host need no ssh.
bool is_this_host(const std::string& name);

// Where things of a job are, known when ports have been reserved.
struct Addresses {
  std::vector<std::string> hosts;  // a host: how the others reach it
  std::vector<int> task_ports;     // a rank
  int master_port = 0;
  std::vector<std::string> rendezvous;  // a host: HOST:PORT of the job's server
};
// What a rank finds in its environment, besides what it inherits.
Environment environment_of(const Plan& plan, const PlannedRank& rank, const Addresses& addresses,
                           const std::string& token);
// Those that the user passes on, of --env.
Environment user_environment(const RunOptions& options);

}  // namespace tandem::tools
