// MultiWorkerMirrored: the replicas of several processes, in step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "distribute/local_strategy.h"
#include "distribute/worker_group.h"

namespace tandem::distribute {

// Which of the workers this process is, and where they meet.
struct WorkerPlace {
  std::string task_type = "worker";
  int task_index = 0;
  bool chief = true;
  int worker = 0;
  int num_workers = 1;
  std::shared_ptr<Job> job;            // that init_process_group() joined; null: none did
  std::string url;                     // of the rendezvous, where there is no job
  std::vector<std::string> addresses;  // of the workers, where TF_CONFIG tells
};

// From TF_CONFIG, else the job that this process is in, else from a launcher's variables, else
// alone.
WorkerPlace find_worker_place();

class MultiWorkerStrategy final : public LocalStrategy {
 public:
  // `workers`: null: this process is alone.
  MultiWorkerStrategy(WorkerPlace place, std::vector<Device*> devices,
                      std::shared_ptr<WorkerGroup> workers, std::shared_ptr<ReplicaGroup> group)
      : LocalStrategy("MultiWorkerMirroredStrategy", std::move(devices), std::move(group)),
        place_(std::move(place)),
        workers_(std::move(workers)) {}

  const WorkerPlace& place() const { return place_; }
  std::shared_ptr<Workers> workers() const override { return workers_; }
  bool is_chief() const override { return place_.chief; }

 private:
  WorkerPlace place_;
  std::shared_ptr<WorkerGroup> workers_;
};

}  // namespace tandem::distribute
