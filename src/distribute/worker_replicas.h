// Replicas of several processes.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "distribute/replica_group.h"
#include "distribute/worker_group.h"

namespace tandem::distribute {

struct WorkerReplicasOptions {
  std::string backend = "auto";  // group/connect.h
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
};

// The workers of a job. Each calls this and the next.
std::shared_ptr<WorkerGroup> make_worker_group(std::shared_ptr<Job> job, bool owns_job,
                                               int local_replicas,
                                               const WorkerReplicasOptions& options);

// A replica for each of `devices`, and those of the other workers: joined by the processes' group
// where each worker has one, else by threads inside the workers and that group between them.
std::shared_ptr<ReplicaGroup> make_worker_replicas(Job& job, std::shared_ptr<WorkerGroup> workers,
                                                   const std::vector<Device*>& devices,
                                                   const WorkerReplicasOptions& options);

}  // namespace tandem::distribute
