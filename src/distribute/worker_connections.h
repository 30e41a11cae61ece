// Connects the replicas of several processes.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "distribute/job_membership.h"
#include "distribute/replica_connections.h"

namespace tandem::distribute {

struct WorkerConnectionOptions {
  std::string backend = "auto";  // see group/connect.h
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
};

// Connects this process to the other workers of the job. Each worker calls this, then
// connect_workers().
std::shared_ptr<JobMembership> join_workers(std::shared_ptr<Job> job, bool owns_job,
                                            int local_replicas,
                                            const WorkerConnectionOptions& options);

// Connects one replica per device in `devices` with those of the other workers. If each worker has
// one replica, the processes' communicator joins them directly. Otherwise threads reduce within a
// worker, and that communicator between workers.
std::shared_ptr<ReplicaConnections> connect_workers(Job& job,
                                                    std::shared_ptr<JobMembership> workers,
                                                    const std::vector<Device*>& devices,
                                                    const WorkerConnectionOptions& options);

}  // namespace tandem::distribute
