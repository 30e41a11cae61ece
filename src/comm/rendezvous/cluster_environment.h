// The job information that launchers put into environment variables: `tandem run` and torchrun,
// Open MPI, MPICH, Slurm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem {

struct ClusterEnvironment {
  std::optional<int> rank, size, local_rank, local_size;
  // Distinguishes the job from others on the same hosts; empty if the launcher does not say.
  std::string job;
  // The host of rank 0; empty if unknown.
  std::string master;
  // Where rank 0 listens: one port, or several that are derived from `job`, of which rank 0 takes
  // the first free one. Empty if unknown.
  std::vector<std::uint16_t> ports;
  // A rendezvous server outside the ranks, if there is one.
  std::optional<Endpoint> server;

  // The variables of two launchers that disagree, for the message of require_one_launcher().
  std::string conflict;

  // Throws InvalidArgumentError if two launchers disagree: RANK and WORLD_SIZE of an earlier job
  // may have stayed in the shell. For users of `rank` and `size`.
  void require_one_launcher() const;
  // Whether all ranks are on this host.
  bool on_one_host() const { return size && local_size && *size == *local_size; }
  bool on_several_hosts() const { return size && local_size && *size > *local_size; }
  // Whether the server serves a job of this size. A launcher's server is for the job of all ranks
  // that the launcher started; a job of another size is a different one.
  bool has_server_for(int job_size) const { return server && size.value_or(job_size) == job_size; }
};

// Reads the variables of one launcher: the first in the order above that sets rank and size. Throws
// InvalidArgumentError, naming the variable, for an invalid value.
ClusterEnvironment cluster_environment();

// Ports for a job: the same in every process, and usually different for other jobs. Below the
// ephemeral port range.
std::vector<std::uint16_t> ports_of_job(const std::string& job);

// The first host in Slurm's notation: gpu03 for "gpu[03-05,9],login". Empty if there is none.
std::string first_slurm_host(const std::string& list);
// The number of tasks of a node in Slurm's notation: "2(x3),1" is 2 for nodes 0 to 2, 1 for node 3.
std::optional<int> slurm_tasks_of(const std::string& tasks_per_node, int node);

}  // namespace tandem
