#include "distribute/replica_connections.h"

namespace tandem::distribute {
namespace {

// The group of one traced program's replicas, which all run in this process.
class ThreadProgramGroup final : public CollectiveGroup {
 public:
  ThreadProgramGroup(const std::vector<DeviceImpl*>& devices, const LocalGroupOptions& options)
      : active_(devices.size(), true), group_(std::make_shared<LocalGroup>(devices, options)) {
    for (std::size_t rank = 0; rank < devices.size(); ++rank)
      communicators_.push_back(group_->communicator(static_cast<int>(rank)));
  }

  Communicator& communicator(int rank) override {
    return *communicators_[static_cast<std::size_t>(rank)];
  }
  int size() const override { return static_cast<int>(communicators_.size()); }
  bool within_program() const override { return true; }
  void begin() override { group_->begin_step(active_); }
  void abort(const std::string& reason) override { group_->abort(0, reason); }

 private:
  std::vector<bool> active_;
  std::shared_ptr<LocalGroup> group_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

class ThreadConnections final : public ReplicaConnections {
 public:
  ThreadConnections(std::vector<DeviceImpl*> devices, const LocalPlan& plan)
      : devices_(std::move(devices)),
        plan_(plan),
        group_(std::make_shared<LocalGroup>(devices_, LocalGroupOptions{.plan = plan})) {}

  int num_replicas() const override { return group_->size(); }
  int first_replica() const override { return 0; }
  bool requires_all_replicas() const override { return false; }
  std::shared_ptr<Communicator> communicator(int local) override {
    return group_->communicator(local);
  }
  void begin_step(const std::vector<bool>& participating) override {
    group_->begin_step(participating);
  }
  void end_step(int local) override { group_->end_step(local); }
  void abort(int local, const std::string& reason) override { group_->abort(local, reason); }

  ProgramRanks program_ranks(const std::vector<bool>& participating) override {
    ProgramRanks ranks{.group = nullptr, .of_replica = std::vector<int>(devices_.size(), -1)};
    std::vector<DeviceImpl*> members;
    LocalPlan plan = plan_;
    plan.root = 0;
    for (std::size_t id = 0; id < devices_.size(); ++id) {
      if (!participating[id]) continue;
      if (static_cast<int>(id) == plan_.root) plan.root = static_cast<int>(members.size());
      ranks.of_replica[id] = static_cast<int>(members.size());
      members.push_back(devices_[id]);
    }
    ranks.group = std::make_shared<ThreadProgramGroup>(members, LocalGroupOptions{.plan = plan});
    return ranks;
  }

 private:
  std::vector<DeviceImpl*> devices_;
  LocalPlan plan_;
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace

std::unique_ptr<ReplicaConnections> connect_threads(std::vector<DeviceImpl*> devices,
                                                    const LocalPlan& plan) {
  return std::make_unique<ThreadConnections>(std::move(devices), plan);
}

}  // namespace tandem::distribute
