// What launchers tell a process about its job: `tandem run` and torchrun, Open MPI, MPICH, Slurm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem {

struct ClusterEnvironment {
  std::optional<int> rank, size, local_rank, local_size;
  // What tells the job from others on the same machines, where the launcher says; else empty.
  std::string job;
  // Where rank 0 is. Empty when nobody says.
  std::string master;
  // Where it listens: one port, or several that follow from `job`, of which rank 0 takes the first
  // that is free. Empty when nobody says.
  std::vector<std::uint16_t> ports;
  // A server that is none of the ranks', where somebody says.
  std::optional<Endpoint> server;

  // All ranks are on this machine.
  bool on_one_host() const { return size && local_size && *size == *local_size; }
  bool on_several_hosts() const { return size && local_size && *size > *local_size; }
};

// Throws InvalidArgumentError, naming the variable, for a value that makes no sense. Variables are
// taken from one launcher: the first that says the rank and the size, in the order above.
ClusterEnvironment cluster_environment();

// Ports for a job, the same wherever it is asked, and others for other jobs, mostly. Below those
// that systems give away by themselves.
std::vector<std::uint16_t> ports_of_job(const std::string& job);

// The first host of Slurm's notation: "gpu[03-05,9],login" is gpu03. Empty when there is none.
std::string first_slurm_host(const std::string& list);
// The tasks of a node in Slurm's notation: "2(x3),1" is 2 for the nodes 0 to 2, 1 for node 3.
std::optional<int> slurm_tasks_of(const std::string& tasks_per_node, int node);

}  // namespace tandem
