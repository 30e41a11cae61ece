// The implementation of the handles of tandem/comm.h.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "graph/collective.h"
#include "tandem/comm.h"

namespace tandem::comm {

// A launched collective and the memory that it uses.
struct PendingWork {
  std::vector<Tensor> memory;   // of its buffers
  std::vector<Tensor> results;  // on the group's device
  // the device that each result is copied to; null: it stays where it is
  std::vector<DeviceImpl*> devices;
  // null: ended, or part of a trace; destroyed before the memory
  std::shared_ptr<CollectiveWork> work;
};

// Some ranks of a job. One thread at a time, like its communicator.
class ProcessGroupImpl {
 public:
  // All ranks of the job. `backend` is not "auto".
  ProcessGroupImpl(std::shared_ptr<Job> job, std::string backend,
                   std::chrono::milliseconds time_limit);
  // Some of `world`'s ranks. `communicator` is null if this process is not among them.
  ProcessGroupImpl(const ProcessGroupImpl& world, std::vector<int> ranks, std::string name,
                   std::unique_ptr<Communicator> communicator);
  ~ProcessGroupImpl();

  const std::shared_ptr<Job>& job() const { return job_; }
  const std::string& name() const { return name_; }
  const std::string& backend() const { return backend_; }
  std::chrono::milliseconds time_limit() const { return time_limit_; }
  // The job's ranks in the group, in the group's order.
  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // This process's rank in the group; -1: not a member.
  int rank() const { return rank_; }
  // Converts a rank of the job to a rank of the group. Throws InvalidArgumentError, naming `op`, if
  // it is not a member.
  int rank_of(int job_rank, std::string_view op) const;

  // Throws InvalidArgumentError, naming `op`, if this process is not a member, and
  // FailedPreconditionError if the group was destroyed.
  void require_use(std::string_view op) const;
  // The device of the group's collectives: the default device at the first use of the communicator.
  // The group connects at that use, which is a collective call.
  DeviceImpl& device() { return communicator().device(); }
  Communicator& communicator() { return *shared_communicator(); }
  // The same, for callers that may outlive the group.
  const std::shared_ptr<Communicator>& shared_communicator();
  // The same, for collective nodes of traced functions.
  const std::shared_ptr<const CollectiveMember>& member();
  // Another communicator of the same ranks, independent of this one, for collectives on another
  // thread or concurrent with the group's. A collective call.
  std::unique_ptr<Communicator> duplicate(DeviceImpl& device);

  // Keeps a launched collective alive until it has ended, even if no caller waits for it.
  void keep(std::shared_ptr<PendingWork> pending);
  // The number of earlier calls; the same on every rank if all call it equally often.
  int next_barrier() { return barriers_++; }
  // Leaves the group after the launched collectives have ended.
  void close();

 private:
  void drop_ended();

  std::shared_ptr<Job> job_;
  std::string backend_, name_;
  std::chrono::milliseconds time_limit_;
  std::vector<int> ranks_;
  int rank_ = -1;
  int barriers_ = 0;
  bool closed_ = false;
  std::deque<std::shared_ptr<PendingWork>> pending_;  // destroyed after the communicator
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<const CollectiveMember> member_;
};

namespace detail {

// The group of all ranks. Throws FailedPreconditionError "... Default process group has not been
// initialized, please make sure to call init_process_group." Thread-safe.
std::shared_ptr<ProcessGroupImpl> default_group(std::string_view op);
// The group of a handle, or the default group if the handle is empty.
std::shared_ptr<ProcessGroupImpl> group_of(const ProcessGroup& group, std::string_view op);
// Reports to the job's other ranks, if there is a job, that this process fails.
void report_failure(const std::string& reason) noexcept;

}  // namespace detail
}  // namespace tandem::comm
