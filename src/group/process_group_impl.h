// What the handles of tandem/comm.h stand for.
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

// A collective that is under way, with the memory that it works on.
struct PendingWork {
  std::vector<Tensor> memory;          // that of its buffers
  std::vector<Tensor> results;         // on the group's device
  std::vector<Device*> devices;        // where each result is wanted; null: where it is
  std::shared_ptr<tandem::Work> work;  // null: ended, or part of a trace; goes before the memory
};

// Some ranks of a job. Like its communicator it belongs to one thread at a time.
class ProcessGroupImpl {
 public:
  // All ranks of the job. `backend` is no longer "auto".
  ProcessGroupImpl(std::shared_ptr<Job> job, std::string backend,
                   std::chrono::milliseconds time_limit);
  // Some of `world`'s, this process among them where `communicator` is not null.
  ProcessGroupImpl(const ProcessGroupImpl& world, std::vector<int> ranks, std::string name,
                   std::unique_ptr<Communicator> communicator);
  ~ProcessGroupImpl();

  const std::shared_ptr<Job>& job() const { return job_; }
  const std::string& name() const { return name_; }
  const std::string& backend() const { return backend_; }
  std::chrono::milliseconds time_limit() const { return time_limit_; }
  // The job's ranks that the group has, in its order.
  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // This process's rank in the group; -1: it is none of its ranks.
  int rank() const { return rank_; }
  // The rank in the group of a rank of the job. Throws InvalidArgumentError, naming `op`, when the
  // group does not have it.
  int rank_of(int job_rank, std::string_view op) const;

  // Throws InvalidArgumentError, naming `op`, when this process is none of the group's ranks, and
  // FailedPreconditionError when the group was destroyed.
  void require_use(std::string_view op) const;
  // The device whose memory the collectives work on: where a new tensor would be when the
  // communicator was first asked for. Only then the group connects: every rank must ask.
  Device& device() { return communicator().device(); }
  Communicator& communicator() { return *shared_communicator(); }
  // The same, for who may outlive the group's destruction.
  const std::shared_ptr<Communicator>& shared_communicator();
  // The same as nodes of traced functions join it.
  const std::shared_ptr<const CollectiveMember>& member();
  // Another communicator of the same ranks, independent of this one: for who runs collectives on a
  // thread of its own or beside the group's. Every rank calls this in the same order.
  std::unique_ptr<Communicator> duplicate(Device& device);

  // Holds what has been started until it has ended, also if nobody waits for it.
  void keep(std::shared_ptr<PendingWork> pending);
  // How often this was called; the same on every rank where all do.
  int next_barrier() { return barriers_++; }
  // Ends this rank's part, behind what is under way.
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
  std::deque<std::shared_ptr<PendingWork>> pending_;  // goes after the communicator
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<const CollectiveMember> member_;
};

namespace detail {

// The group of all ranks. Throws FailedPreconditionError "... Default process group has not been
// initialized, please make sure to call init_process_group." Thread-safe.
std::shared_ptr<ProcessGroupImpl> default_group(std::string_view op);
// What the handle stands for, the default group where it is empty.
std::shared_ptr<ProcessGroupImpl> group_of(const ProcessGroup& group, std::string_view op);
// This process fails: tells the other ranks of its job why, where it is in one.
void report_failure(const std::string& reason) noexcept;

}  // namespace detail
}  // namespace tandem::comm
