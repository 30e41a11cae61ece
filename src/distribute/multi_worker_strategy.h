// MultiWorkerMirroredStrategy: synchronous training with the replicas of several processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "distribute/job_membership.h"
#include "distribute/local_strategy.h"
#include "tandem/comm.h"

namespace tandem::distribute {

// This process's place among the workers, and how they find each other.
struct WorkerConfig {
  std::string task_type = "worker";
  int task_index = 0;
  bool chief = true;
  int worker = 0;
  int num_workers = 1;
  std::shared_ptr<comm::ProcessGroupImpl> group;  // that the program gave, or null
  std::shared_ptr<Job> job;  // its, or from init_process_group(); null if neither was made
  std::string url;           // of the rendezvous server, if there is no job
  std::vector<std::string> addresses;  // of the workers; filled only from TF_CONFIG
};

// The given group; without one reads TF_CONFIG, else the job that this process has joined, else a
// launcher's environment variables. Without any of these the process trains alone.
WorkerConfig find_worker_config(const comm::ProcessGroup& group = {});

class MultiWorkerStrategy final : public LocalStrategy {
 public:
  // `workers`: null if this process trains alone.
  MultiWorkerStrategy(WorkerConfig config, std::vector<DeviceImpl*> devices,
                      std::shared_ptr<JobMembership> workers,
                      std::shared_ptr<ReplicaConnections> connections)
      : LocalStrategy("MultiWorkerMirroredStrategy", std::move(devices), std::move(connections)),
        config_(std::move(config)),
        workers_(std::move(workers)) {}

  const WorkerConfig& config() const { return config_; }
  std::shared_ptr<WorkerCollectives> workers() const override { return workers_; }
  bool is_chief() const override { return config_.chief; }
  // With several workers, each iterates over its part of the data (DistributedIterator).
  std::unique_ptr<BatchSource> iterate(const data::Dataset& data,
                                       const data::IterateOptions& options,
                                       std::function<void(const data::Example&)> check) override;

 private:
  WorkerConfig config_;
  std::shared_ptr<JobMembership> workers_;
};

}  // namespace tandem::distribute
