#include "distribute/worker_connections.h"

#include <exception>

#include "comm/hierarchical/hierarchical_communicator.h"
#include "core/thread_team.h"
#include "device/device_manager.h"
#include "group/connect.h"

namespace tandem::distribute {
namespace {

// The group of traced programs: each process runs its own replicas' part.
class WorkerProgramGroup final : public CollectiveGroup {
 public:
  explicit WorkerProgramGroup(std::shared_ptr<ReplicaConnections> replicas)
      : replicas_(std::move(replicas)) {}
  Communicator& communicator(int rank) override {
    return *replicas_->communicator(rank - replicas_->first_replica());
  }
  int size() const override { return replicas_->num_replicas(); }
  bool within_program() const override { return false; }
  void begin() override { replicas_->begin_step({}); }
  void abort(const std::string& reason) override { replicas_->abort(0, reason); }

 private:
  std::shared_ptr<ReplicaConnections> replicas_;
};

// Owned by the strategy and its programs.
class WorkerConnections final : public ReplicaConnections,
                                public std::enable_shared_from_this<WorkerConnections> {
 public:
  WorkerConnections(Job& job, std::shared_ptr<JobMembership> workers,
                    const std::vector<Device*>& devices, const WorkerConnectionOptions& options)
      : workers_(std::move(workers)) {
    auto between = connect(job, *devices.front(),
                           {.backend = options.backend, .time_limit = options.time_limit});
    if (workers_->num_replicas() == workers_->size()) {
      communicators_.push_back(std::move(between));
      return;
    }
    threads_ = std::make_shared<LocalGroup>(
        devices, LocalGroupOptions{.plan = {.kind = LocalPlan::Kind::kNccl},
                                   .time_limit = options.time_limit});
    communicators_.resize(devices.size());
    std::vector<std::exception_ptr> errors(devices.size());
    ThreadTeam together(static_cast<int>(devices.size()));  // the ranks meet
    together.run([&](int local) {
      try {
        communicators_[static_cast<std::size_t>(local)] = make_hierarchical_communicator(
            threads_->communicator(local), local == 0 ? std::move(between) : nullptr,
            {.time_limit = options.time_limit, .direct = nullptr});
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(local)] = std::current_exception();
        threads_->abort(local, error.what());
      }
    });
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

  int num_replicas() const override { return workers_->num_replicas(); }
  int first_replica() const override { return workers_->first_replica(); }
  bool requires_all_replicas() const override { return true; }
  std::shared_ptr<Communicator> communicator(int local) override {
    return communicators_[static_cast<std::size_t>(local)];
  }
  void begin_step(const std::vector<bool>&) override {
    workers_->check();
    if (threads_) threads_->begin_step(std::vector<bool>(communicators_.size(), true));
  }
  void end_step(int local) override {
    if (threads_) threads_->end_step(local);
  }
  void abort(int local, const std::string& reason) override {
    if (threads_) threads_->abort(local, reason);
    workers_->abort(reason);
  }
  ProgramRanks program_ranks(const std::vector<bool>&) override {
    ProgramRanks ranks{.group = programs_.lock(), .of_replica = {}};
    if (!ranks.group)
      programs_ = ranks.group = std::make_shared<WorkerProgramGroup>(shared_from_this());
    for (std::size_t local = 0; local < communicators_.size(); ++local)
      ranks.of_replica.push_back(first_replica() + static_cast<int>(local));
    return ranks;
  }

 private:
  std::shared_ptr<JobMembership> workers_;
  std::shared_ptr<LocalGroup> threads_;  // null if every worker has one replica
  std::vector<std::shared_ptr<Communicator>> communicators_;
  std::weak_ptr<CollectiveGroup> programs_;  // shared by the programs that exist now
};

}  // namespace

std::shared_ptr<JobMembership> join_workers(std::shared_ptr<Job> job, bool owns_job,
                                            int local_replicas,
                                            const WorkerConnectionOptions& options) {
  // The workers agree on host memory, which NCCL cannot access.
  auto host = connect(*job, DeviceManager::get().host(),
                      {.backend = options.backend == "nccl" ? "auto" : options.backend,
                       .time_limit = options.time_limit});
  return std::make_shared<JobMembership>(std::move(job), owns_job, std::move(host), local_replicas);
}

std::shared_ptr<ReplicaConnections> connect_workers(Job& job,
                                                    std::shared_ptr<JobMembership> workers,
                                                    const std::vector<Device*>& devices,
                                                    const WorkerConnectionOptions& options) {
  return std::make_shared<WorkerConnections>(job, std::move(workers), devices, options);
}

}  // namespace tandem::distribute
